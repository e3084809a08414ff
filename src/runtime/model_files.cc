#include "runtime/model_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "formats/gguf/gguf_file.h"
#include "formats/weight_source.h"
#include "model/config_fields.h"

namespace markbase::runtime {
namespace {

namespace fs = std::filesystem;

// A link that leads nowhere is there too: reading it then says so, instead of doing without.
bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

bool is_projector(const std::string& file_name) { return file_name.starts_with("mmproj"); }

// GGUF models of a directory: projectors and later parts of split sets left out.
std::vector<std::string> gguf_models_in(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".gguf" || is_projector(name)) continue;
    if (first_split(entry.path().string()) == entry.path().string())
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Error wrong_key(const formats::GgufFile& file, const std::string& key, std::string_view expected,
                const base::Json& got) {
  return base::bad_input("{}: {}: expected {}, got {}", file.path(), key, expected,
                         model::shown(got));
}

// "" when there is no such key.
Result<std::string> text_key(const formats::GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return std::string();
  if (!found->is_string()) return wrong_key(file, key, "a string", *found);
  return found->get<std::string>();
}

Result<bool> flag_key(const formats::GgufFile& file, const std::string& key, bool fallback) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return fallback;
  if (!found->is_boolean()) return wrong_key(file, key, "a bool", *found);
  return found->get<bool>();
}

// -1 when there is no such key, or the file says -1 itself.
Result<int64_t> id_key(const formats::GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return -1;
  const bool fits =
      found->is_number_integer() &&
      (found->is_number_unsigned() ? found->get<uint64_t>() <= std::numeric_limits<uint32_t>::max()
                                   : found->get<int64_t>() >= -1);
  if (!fits) return wrong_key(file, key, "the id of a token", *found);
  return found->get<int64_t>();
}

// JSON arrays of strings in full; the GGUF file keeps long ones out of its metadata object.
Result<tokenizer::GgufVocabulary> read_vocabulary(const formats::GgufFile& file) {
  const base::Json& metadata = file.metadata();
  tokenizer::GgufVocabulary v;
  MB_ASSIGN(v.model, text_key(file, "tokenizer.ggml.model"));
  if (v.model.empty()) {
    return base::bad_input("{}: tokenizer.ggml.model: expected a tokenizer in the file, got none",
                           file.path());
  }
  MB_ASSIGN(v.pre, text_key(file, "tokenizer.ggml.pre"));
  MB_ASSIGN(v.chat_template, text_key(file, "tokenizer.chat_template"));
  MB_ASSIGN(v.tokens, file.string_array("tokenizer.ggml.tokens"));
  if (metadata.contains("tokenizer.ggml.scores")) {
    MB_ASSIGN(v.scores, file.float_array("tokenizer.ggml.scores"));
  }
  if (metadata.contains("tokenizer.ggml.merges")) {
    MB_ASSIGN(v.merges, file.string_array("tokenizer.ggml.merges"));
  }
  if (metadata.contains("tokenizer.ggml.token_type")) {
    MB_ASSIGN(const auto types, file.integer_array("tokenizer.ggml.token_type"));
    v.token_types.assign(types.begin(), types.end());
  }
  MB_ASSIGN(v.bos_id, id_key(file, "tokenizer.ggml.bos_token_id"));
  MB_ASSIGN(v.eos_id, id_key(file, "tokenizer.ggml.eos_token_id"));
  MB_ASSIGN(v.eot_id, id_key(file, "tokenizer.ggml.eot_token_id"));
  MB_ASSIGN(v.unk_id, id_key(file, "tokenizer.ggml.unknown_token_id"));
  MB_ASSIGN(v.pad_id, id_key(file, "tokenizer.ggml.padding_token_id"));
  MB_ASSIGN(v.add_space_prefix, flag_key(file, "tokenizer.ggml.add_space_prefix", false));
  // BOS stands before every text, whatever the key says; a value of another kind is a broken file.
  MB_TRY(flag_key(file, "tokenizer.ggml.add_bos_token", true));
  return v;
}

// chat_template.jinja, or the older chat_template.json; "" when there is neither.
Result<std::string> chat_template_beside(const fs::path& directory) {
  if (path_exists(directory / "chat_template.jinja")) {
    return read_file((directory / "chat_template.jinja").string());
  }
  const std::string older = (directory / "chat_template.json").string();
  if (!path_exists(older)) return std::string();
  MB_ASSIGN(const std::string text, read_file(older));
  MB_ASSIGN(const base::Json json, base::parse_json(text, older));
  const auto found = json.find("chat_template");
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<std::string> read_file(const std::string& path, uint64_t most_bytes) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return base::bad_input("{}: expected a readable file, got: {}", path, error.message());
  if (size > most_bytes) {
    return base::bad_input("{}: expected at most {} bytes, got {}", path, most_bytes, size);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return base::bad_input("{}: expected {} readable bytes, got {}", path, size, file.gcount());
  }
  return text;
}

std::string first_split(const std::string& path) {
  // "NAME-00003-of-00007.gguf"
  constexpr size_t kTail = 20;
  const size_t name = path.rfind('/') + 1;
  if (path.size() - name <= kTail) return path;
  const std::string tail = path.substr(path.size() - kTail);
  const auto digits = [&](size_t at) {
    return std::all_of(tail.begin() + static_cast<std::ptrdiff_t>(at),
                       tail.begin() + static_cast<std::ptrdiff_t>(at + 5),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (tail[0] != '-' || !digits(1) || tail.substr(6, 4) != "-of-" || !digits(10)) return path;
  return path.substr(0, path.size() - kTail) + "-00001" + tail.substr(6);
}

Result<ModelPath> open_model_path(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return base::bad_input("{}: no such file or directory", path);
  if (!fs::is_directory(status)) return ModelPath{PathKind::kGguf, path};
  const fs::path directory(path);
  if (path_exists(directory / "config.json") || path_exists(directory / "tokenizer.json")) {
    return ModelPath{PathKind::kDirectory, path};
  }
  const std::vector<std::string> models = gguf_models_in(path);
  if (models.size() == 1) return ModelPath{PathKind::kGguf, models.front()};
  if (models.size() > 1) {
    return base::bad_input(
        "{}: expected one model, got {} GGUF files; name one of them, such as {}", path,
        models.size(), models.front());
  }
  return base::bad_input("{}: expected config.json with safetensors, or a GGUF file, got neither",
                         path);
}

Result<bool> has_tokenizer(const ModelPath& path) {
  if (path.kind == PathKind::kDirectory) return path_exists(fs::path(path.path) / "tokenizer.json");
  MB_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(first_split(path.path)));
  return file.metadata().contains("tokenizer.ggml.model");
}

Result<std::unique_ptr<tokenizer::Tokenizer>> load_tokenizer(const ModelPath& path) {
  if (path.kind == PathKind::kGguf) {
    MB_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(first_split(path.path)));
    MB_ASSIGN(const tokenizer::GgufVocabulary vocabulary, read_vocabulary(file));
    return tokenizer::from_gguf(vocabulary, file.path());
  }
  const fs::path directory(path.path);
  const std::string json_path = (directory / "tokenizer.json").string();
  if (!path_exists(json_path)) {
    return base::bad_input("{}: expected tokenizer.json in the directory, got none", path.path);
  }
  MB_ASSIGN(const std::string json, read_file(json_path));
  std::string config;
  if (path_exists(directory / "tokenizer_config.json")) {
    const std::string config_path = (directory / "tokenizer_config.json").string();
    MB_ASSIGN(config, read_file(config_path));
    if (config.empty())
      return base::bad_input("{}: expected a JSON object, got an empty file", config_path);
  }
  MB_ASSIGN(const std::string chat_template, chat_template_beside(directory));
  return tokenizer::from_tokenizer_json(json, config, chat_template, json_path);
}

std::string chat_template_place(const ModelPath& path) {
  if (path.kind == PathKind::kGguf) return first_split(path.path) + ": tokenizer.chat_template";
  const fs::path directory(path.path);
  for (const char* name : {"chat_template.jinja", "chat_template.json"}) {
    if (path_exists(directory / name)) return (directory / name).string();
  }
  return (directory / "tokenizer_config.json").string();
}

}  // namespace markbase::runtime
