// logits and trace: numbers to files.
#include <sys/stat.h>
#include <unistd.h>

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
  MB_TRY(check_file_target(options.out));
  MB_ASSIGN(const PromptOptions prompt, checked_prompt(options.prompt));
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  MB_ASSIGN(const Request request, prompt_request(prompt, engine));
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

// A folder that goes again if it is ours and nothing came into it.
class OutFolder {
 public:
  explicit OutFolder(std::string path) : path_(std::move(path)) {}
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;
  ~OutFolder() {
    if (made_) (void)::rmdir(path_.c_str());  // fails where there are files
  }
  Result<void> make() {
    made_ = ::mkdir(path_.c_str(), 0777) == 0;
    if (made_ || errno == EEXIST) return {};
    return base::failed("{}: cannot be made: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  bool made_ = false;
};

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

  // [{"name","shape"}] of what is in place now.
  Result<base::Json> close() {
    base::Json written = base::Json::array();
    for (auto& [name, file] : files_) {
      MB_TRY(file.writer.close(file.shape));
      written.push_back({{"name", name}, {"shape", file.shape}});
    }
    return written;
  }

 private:
  struct File {
    NpyWriter writer;
    std::vector<int64_t> shape;
  };
  std::string directory_;
  std::map<std::string, File> files_;
};

// Every intermediate has one row a token.
constexpr const char* kRowsName = "num_tokens";

Result<int> list_trace(Engine& engine, const TraceOptions& options) {
  base::Json names = base::Json::array();
  std::string lines;
  const std::vector<int32_t> ids = {0};
  MB_TRY(engine.trace(
      ids, options.only,
      [&](const TraceTensor& tensor) -> Result<void> {
        base::Json shape = {kRowsName};
        for (const int64_t n : tensor.shape.subspan(1)) shape.push_back(n);
        lines += fmt::format("{} [{}", tensor.name, kRowsName);
        for (const int64_t n : tensor.shape.subspan(1)) lines += fmt::format(", {}", n);
        lines += "]\n";
        names.push_back({{"name", tensor.name}, {"shape", std::move(shape)}});
        return {};
      },
      [](int64_t, std::span<const float>) -> Result<void> { return {}; }));
  MB_TRY(print(options.shared.json ? base::dump_json(names, 2) + "\n" : lines));
  return 0;
}

Result<int> trace(const TraceOptions& options) {
  if (options.list) {
    MB_ASSIGN(Engine engine, load_engine(options.shared));
    return list_trace(engine, options);
  }
  if (options.out.empty()) return base::usage_error("--out: where should the files go? --out DIR");
  MB_TRY(check_output_name("--out", options.out));
  MB_TRY(check_folder_target(options.out));
  MB_ASSIGN(const PromptOptions prompt, checked_prompt(options.prompt));
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  MB_ASSIGN(const Request request, prompt_request(prompt, engine));
  MB_ASSIGN(const std::vector<int32_t> ids, engine.prompt_ids(request));
  OutFolder folder(options.out);
  MB_TRY(folder.make());
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
  MB_ASSIGN(const base::Json written, files.close());
  if (written.empty()) {
    return base::usage_error(
        "--only: no intermediate is named '{}' (trace MODEL --list names them)", options.only);
  }
  const int64_t shape[2] = {num_rows, engine.info().vocab_size};
  MB_TRY(rows.close(shape));
  if (options.shared.json) {
    MB_TRY(print(base::dump_json(base::Json{{"ids", ids},
                                            {"out", options.out},
                                            {"shape", {shape[0], shape[1]}},
                                            {"intermediates", written}}) +
                 "\n"));
  }
  note(options.shared.quiet,
       fmt::format("{}: {} intermediates and logits.npy", options.out, written.size()));
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
  app.add_option("--only", options->only,
                 "intermediates to write: layer.3.attn.* (logits.npy is written in any case)");
  CLI::Option* list =
      app.add_flag("--list", options->list, "print the names with shapes, and no more");
  // Names need no prompt and go to stdout.
  for (const char* other : {"-p", "-f", "--ids", "--system", "--raw", "--special", "--think",
                            "--image", "--audio", "--video", "--out"}) {
    list->excludes(app.get_option(other));
  }
  return [options] { return trace(*options); };
}

}  // namespace markbase::cli
