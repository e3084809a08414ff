// logits and trace: numbers to files.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/npy.h"

namespace markbase::cli {
namespace {

struct LogitsOptions {
  SharedOptions shared;
  PromptOptions prompt;
  std::string out;
  bool last = false;
};

struct TraceOptions {
  SharedOptions shared;
  PromptOptions prompt;
  std::string out;
  std::string only = "*";
  bool list = false;
};

Result<void> check_interrupt() {
  if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
  return {};
}

Result<int> logits(const LogitsOptions& options) {
  if (options.out.empty()) return base::usage_error("--out: where should the rows go? --out F.npy");
  MB_TRY(check_output_apart("--out", options.out, options.shared, options.prompt.file));
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  MB_ASSIGN(const Request request, prompt_request(options.prompt, engine, true));
  MB_ASSIGN(const std::vector<int32_t> ids, engine.prompt_ids(request));
  const GracefulInterrupt graceful;
  MB_ASSIGN(NpyWriter writer, NpyWriter::create(options.out));
  int64_t num_rows = 0;
  MB_TRY(engine.logits(ids, options.last, [&](int64_t, std::span<const float> row) -> Result<void> {
    MB_TRY(check_interrupt());
    ++num_rows;
    return writer.append(row);
  }));
  const int64_t shape[2] = {num_rows, engine.info().vocab_size};
  MB_TRY(writer.close(shape));
  if (options.shared.json) {
    MB_TRY(print(base::dump_json(base::Json{
                     {"ids", ids}, {"out", options.out}, {"shape", {shape[0], shape[1]}}}) +
                 "\n"));
  }
  note(options.shared.quiet, fmt::format("{}: [{}, {}] float32", options.out, shape[0], shape[1]));
  return 0;
}

// Files of the intermediates, one by name; a name that comes again (the next chunk) goes on along
// the first axis.
class TraceFiles {
 public:
  explicit TraceFiles(std::string directory) : directory_(std::move(directory)) {}

  Result<void> add(const TraceTensor& tensor) {
    MB_TRY(check_interrupt());
    const std::string name(tensor.name);
    auto it = files_.find(name);
    if (it == files_.end()) {
      MB_ASSIGN(NpyWriter writer, NpyWriter::create(fmt::format("{}/{}.npy", directory_, name)));
      File file{std::move(writer), std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())};
      file.shape[0] = 0;
      it = files_.emplace(name, std::move(file)).first;
    }
    it->second.shape[0] += tensor.shape[0];
    return it->second.writer.append(tensor.values);
  }

  Result<size_t> close() {
    for (auto& [name, file] : files_) MB_TRY(file.writer.close(file.shape));
    return files_.size();
  }

 private:
  struct File {
    NpyWriter writer;
    std::vector<int64_t> shape;
  };
  std::string directory_;
  std::map<std::string, File> files_;
};

Result<int> list_trace(Engine& engine, const TraceOptions& options) {
  std::string lines;
  const std::vector<int32_t> ids = {0};
  MB_TRY(engine.trace(
      ids, options.only,
      [&](const TraceTensor& tensor) -> Result<void> {
        // Every intermediate has one row a token.
        lines += fmt::format("{} [num_tokens", tensor.name);
        for (size_t i = 1; i < tensor.shape.size(); ++i)
          lines += fmt::format(", {}", tensor.shape[i]);
        lines += "]\n";
        return {};
      },
      [](int64_t, std::span<const float>) -> Result<void> { return {}; }));
  MB_TRY(print(lines));
  return 0;
}

Result<int> trace(const TraceOptions& options) {
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  if (options.list) return list_trace(engine, options);
  if (options.out.empty()) return base::usage_error("--out: where should the files go? --out DIR");
  MB_ASSIGN(const Request request, prompt_request(options.prompt, engine, true));
  MB_ASSIGN(const std::vector<int32_t> ids, engine.prompt_ids(request));
  if (::mkdir(options.out.c_str(), 0777) != 0 && errno != EEXIST) {
    return base::failed("{}: cannot be made: {}", options.out, std::strerror(errno));
  }
  const GracefulInterrupt graceful;
  TraceFiles files(options.out);
  MB_ASSIGN(NpyWriter rows, NpyWriter::create(options.out + "/logits.npy"));
  int64_t num_rows = 0;
  MB_TRY(engine.trace(
      ids, options.only, [&](const TraceTensor& tensor) { return files.add(tensor); },
      [&](int64_t, std::span<const float> row) -> Result<void> {
        MB_TRY(check_interrupt());
        ++num_rows;
        return rows.append(row);
      }));
  MB_ASSIGN(const size_t num_files, files.close());
  if (num_files == 0) {
    return base::usage_error(
        "--only: no intermediate is named '{}' (trace MODEL --list names them)", options.only);
  }
  const int64_t shape[2] = {num_rows, engine.info().vocab_size};
  MB_TRY(rows.close(shape));
  note(options.shared.quiet,
       fmt::format("{}: {} intermediates and logits.npy", options.out, num_files));
  return 0;
}

}  // namespace

Action make_logits(CLI::App& app) {
  auto options = std::make_shared<LogitsOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_prompt_options(app, options->prompt);
  app.add_option("--out", options->out, "F.npy: float32 [num_positions, vocab_size]");
  app.add_flag("--last", options->last, "the last position only");
  return [options] { return logits(*options); };
}

Action make_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_prompt_options(app, options->prompt);
  app.add_option("--out", options->out, "a directory: one .npy for each intermediate");
  app.add_option("--only", options->only, "names to write: layer.3.attn.* ");
  app.add_flag("--list", options->list, "print the names with shapes");
  return [options] { return trace(*options); };
}

}  // namespace markbase::cli
