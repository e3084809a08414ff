// verify: reads every byte of a model and lists every fault.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/guard.h"
#include "markbase/tools.h"
#include "model/config_keys.h"
#include "runtime/loaded_model.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;
using model::Fault;
using runtime::ModelPath;
using runtime::PathKind;

constexpr std::string_view kWeightSuffix = ".weight";

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

class Verifier {
 public:
  Verifier(const ModelPath& path, const std::function<void(const Progress&)>& progress)
      : path_(path), progress_(progress) {}

  // An error only when the files could not be read at all.
  Result<base::Json> run() {
    find_lfs_pointers();
    Result<std::unique_ptr<formats::WeightSource>> source = formats::open_weight_source(path_.path);
    if (!source.ok()) {
      // What the reader refuses is a fault like another; an unreadable path is not.
      if (source.error().code != ErrorCode::kBadInput) return source.error();
      add_message(source.error().message);
      // The tokenizer of a folder is a file of its own; that of a GGUF file went with it.
      if (path_.kind == PathKind::kDirectory) check_tokenizer(base::Json::object(), 0);
      return report(nullptr);
    }
    for (const std::string& remark : (*source)->remarks()) add_message(remark);
    check_model(**source);
    for (const formats::TensorInfo& tensor : (*source)->tensors())
      total_bytes_ += tensor.data.size();
    for (const formats::TensorInfo& tensor : (*source)->tensors()) {
      check_values(**source, tensor);
      done_bytes_ += tensor.data.size();
      if (progress_) progress_({"verifying", done_bytes_, total_bytes_});
      (*source)->release(tensor.data);
    }
    if (Result<void> intact = (*source)->check_intact(); !intact.ok())
      add_message(intact.error().message);
    return report(source->get());
  }

 private:
  void add_message(const std::string& message) { faults_.push_back({message, "", "", ""}); }

  base::Json report(const formats::WeightSource* source) const {
    base::Json faults = base::Json::array();
    for (const Fault& fault : faults_) {
      faults.push_back({{"what", fault.what},
                        {"where", fault.where},
                        {"expected", fault.expected},
                        {"got", fault.got}});
    }
    base::Json out = {
        {"path", path_.path}, {"files", base::Json::array()}, {"tensors", 0}, {"bytes", 0}};
    if (source != nullptr) {
      out["files"] = source->files();
      out["tensors"] = source->tensors().size();
      out["bytes"] = total_bytes_;
    }
    // No faults, but what they mean to whoever wrote them is not known here.
    out["unknown_keys"] = source == nullptr
                              ? std::vector<std::string>()
                              : model::unknown_config_keys(source->config(), source->kind());
    out["faults"] = std::move(faults);
    return out;
  }

  // Small text files that stand for what git-lfs never brought.
  void find_lfs_pointers() {
    if (path_.kind != PathKind::kDirectory) return;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_.path, error)) {
      std::error_code ignored;
      if (!entry.is_regular_file(ignored)) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      char start[64] = {};
      file.read(start, sizeof(start) - 1);
      if (std::string_view(start).starts_with("version https://git-lfs")) {
        faults_.push_back({"a Git LFS pointer stands for the file", entry.path().string(),
                           "the file itself (git lfs pull)", "a pointer of 3 lines"});
      }
    }
  }

  void check_model(const formats::WeightSource& source) {
    Result<model::TextConfig> config = model::read_config(source);
    if (!config.ok()) {
      add_message(config.error().message);
    } else {
      const model::WeightMap map = model::map_weights(source, *config, &faults_);
      for (const model::UnusedTensor& tensor : map.unused) {
        if (tensor.known || tensor.in_decoder) continue;  // the latter is among the faults
        faults_.push_back({"a surplus tensor", source.files().front() + ": " + tensor.name,
                           "only tensors of " + config->model_type, "one that has no place there"});
      }
    }
    check_tokenizer(source.config(), config.ok() ? config->vocab_size : 0);
  }

  void check_tokenizer(const base::Json& model_config, int64_t table_rows) {
    const Result<bool> there = runtime::has_tokenizer(path_);
    if (there.ok() && !*there) {
      faults_.push_back(
          {"no tokenizer", path_.path, "tokenizer.json or a vocabulary in the GGUF", "none"});
      return;
    }
    Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer = runtime::load_tokenizer(path_);
    if (!tokenizer.ok()) {
      add_message(tokenizer.error().message);
      return;
    }
    const int64_t tokens = (*tokenizer)->vocab_size();
    if (table_rows > 0 && !runtime::vocabulary_fits(tokens, table_rows)) {
      faults_.push_back({"the tokenizer has more tokens than the embedding table has rows",
                         std::string((*tokenizer)->source()), fmt::format("at most {}", table_rows),
                         fmt::format("{}", tokens)});
    }
    const int64_t vocabulary = table_rows > 0 ? table_rows : tokens;
    const auto generation =
        runtime::load_generation_config(path_, model_config, **tokenizer, vocabulary);
    if (!generation.ok()) add_message(generation.error().message);
  }

  // Every scale and every float, by decoding: a NaN or infinity in either shows in the values.
  void check_values(const formats::WeightSource& source, const formats::TensorInfo& tensor) {
    // An axis of zero leaves no value, however many rows or columns the others count.
    if (tensor.data.empty()) return;
    quant::WeightView view;
    if (tensor.block_format) {
      // As the tensor stands, whatever its name and rank: rows of its last axis.
      view.format = *tensor.block_format;
      view.cols = tensor.shape.empty() ? 1 : tensor.shape.back();
      view.rows = 1;
      for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) view.rows *= tensor.shape[i];
      view.data = tensor.data;
    } else if (tensor.name.ends_with(".weight")) {
      const std::string module = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size());
      if (source.find(module + ".scales") == nullptr) return;
      Result<quant::WeightView> joined = source.weight(module);
      if (!joined.ok()) {
        add_message(joined.error().message);
        return;
      }
      view = *joined;
    } else {
      return;
    }
    std::vector<float> row(static_cast<size_t>(view.cols));
    for (int64_t i = 0; i < view.rows; ++i) {
      quant::decode_row(view, i, row);
      if (all_finite(row)) continue;
      const auto bad =
          std::find_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
      faults_.push_back({"a weight or its scale is not finite",
                         fmt::format("{}: {} row {}, column {}",
                                     source.files()[static_cast<size_t>(tensor.file_idx)],
                                     tensor.name, i, bad - row.begin()),
                         "finite values", std::isnan(*bad) ? "NaN" : "infinity"});
      return;  // one a tensor: the rest would only repeat it
    }
  }

  const ModelPath& path_;
  const std::function<void(const Progress&)>& progress_;
  std::vector<Fault> faults_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Result<std::string> verify_unguarded(const std::string& path,
                                     const std::function<void(const Progress&)>& progress) {
  MB_ASSIGN(const ModelPath model_path, runtime::open_model_path(path));
  MB_ASSIGN(const base::Json report, Verifier(model_path, progress).run());
  return base::dump_json(report);
}

}  // namespace

Result<std::string> verify_json(const std::string& path,
                                const std::function<void(const Progress&)>& progress) {
  return base::guarded("verify_json", [&] { return verify_unguarded(path, progress); });
}

}  // namespace markbase::tools
