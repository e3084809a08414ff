// Models by name: in the models folder, or in the local Hugging Face cache.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/guard.h"
#include "base/nearest.h"
#include "markbase/tools.h"
#include "runtime/model_files.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  std::string path;
  std::string kind;  // "gguf", "safetensors"
};

bool file_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}
bool folder_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The kind of model that a directory holds, if any.
std::optional<std::string> kind_of_directory(const fs::path& path) {
  if (file_exists(path / "config.json")) return "safetensors";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".gguf") return "gguf";
  }
  return std::nullopt;
}

std::vector<fs::path> sorted_entries(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void add_folder(const std::string& models_dir, std::vector<Entry>* entries) {
  for (const fs::path& path : sorted_entries(models_dir)) {
    const std::string name = path.filename().string();
    if (file_exists(path) && path.extension() == ".gguf") {
      const bool later_split = runtime::first_split(path.string()) != path.string();
      if (!later_split && !name.starts_with("mmproj")) {
        entries->push_back({path.stem().string(), path.string(), "gguf"});
      }
    } else if (folder_exists(path)) {
      if (const auto kind = kind_of_directory(path))
        entries->push_back({name, path.string(), *kind});
    }
  }
}

// models--org--name/snapshots/<what refs/main says>, or the only snapshot there is.
std::optional<fs::path> snapshot_of(const fs::path& repository) {
  if (Result<std::string> ref = runtime::read_file((repository / "refs/main").string(), 4096);
      ref.ok()) {
    const size_t end = ref->find_last_not_of(" \n\r\t");
    const std::string commit = end == std::string::npos ? "" : ref->substr(0, end + 1);
    const bool plain = !commit.empty() && commit.find('/') == std::string::npos && commit[0] != '.';
    if (plain && folder_exists(repository / "snapshots" / commit))
      return repository / "snapshots" / commit;
  }
  const std::vector<fs::path> snapshots = sorted_entries(repository / "snapshots");
  if (snapshots.size() == 1) return snapshots.front();
  return std::nullopt;
}

void add_cache(const std::string& hf_hub, std::vector<Entry>* entries) {
  constexpr std::string_view kPrefix = "models--";
  for (const fs::path& path : sorted_entries(hf_hub)) {
    std::string name = path.filename().string();
    if (!name.starts_with(kPrefix) || !folder_exists(path)) continue;
    name = name.substr(kPrefix.size());
    const size_t dashes = name.find("--");
    if (dashes != std::string::npos) name = name.substr(0, dashes) + "/" + name.substr(dashes + 2);
    const std::optional<fs::path> snapshot = snapshot_of(path);
    if (!snapshot) continue;
    if (const auto kind = kind_of_directory(*snapshot)) {
      entries->push_back({name, snapshot->string(), *kind});
    }
  }
}

std::vector<Entry> all_models(const ModelPlaces& places) {
  std::vector<Entry> entries;
  if (!places.models_dir.empty()) add_folder(places.models_dir, &entries);
  if (!places.hf_hub.empty()) add_cache(places.hf_hub, &entries);
  return entries;
}

std::string nearest_text(const std::string& name, const std::vector<Entry>& entries) {
  constexpr size_t kLongest = 256;
  if (entries.empty()) return "no model is there yet";
  const std::string shown = name.substr(0, kLongest);
  const auto nearer = [&](const Entry& a, const Entry& b) {
    return base::edit_distance(shown, a.name) < base::edit_distance(shown, b.name);
  };
  return "the nearest name is \"" + std::min_element(entries.begin(), entries.end(), nearer)->name +
         "\"";
}

// The model that scripts/fetch_model.sh puts into the models folder.
constexpr std::string_view kScriptModel = "gemma-3-270m-q4_k_m";
constexpr std::string_view kScriptLine = "scripts/fetch_model.sh";

bool looks_like_path(const std::string& name) {
  return name.starts_with("/") || name.starts_with("./") || name.starts_with("../") ||
         name.ends_with(".gguf");
}

bool is_hub_part(std::string_view part) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !part.empty() && part[0] != '.' && part[0] != '-' && std::ranges::all_of(part, allowed);
}

// org/name: letters and digits, so that it needs no quotes in a shell.
bool is_hub_name(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != name.npos && is_hub_part(name.substr(0, slash)) &&
         is_hub_part(name.substr(slash + 1));
}

// The line that fetches the model, where one is known.
std::string fetch_text(const std::string& name) {
  const std::string stem = name.ends_with(".gguf") ? name.substr(0, name.size() - 5) : name;
  if (fs::path(stem).filename() == kScriptModel) {
    return fmt::format("; in a clone of MarkBase, this fetches it: {}", kScriptLine);
  }
  if (looks_like_path(name) || !is_hub_name(name)) return {};
  return fmt::format("; this fetches it: hf download {}", name);
}

// Of the files that belong to the model: packed weights beside them are ours.
uint64_t bytes_of(const fs::path& path) {
  std::error_code error;
  if (file_exists(path)) return fs::file_size(path, error);
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".repacked") continue;
    std::error_code ignored;
    const uint64_t size = fs::file_size(entry.path(), ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

Result<std::string> resolve_model_unguarded(const std::string& name, const ModelPlaces& places) {
  std::error_code ignored;
  if (name.empty()) return base::usage_error("MODEL: expected a path or a name, got nothing");
  if (fs::exists(name, ignored)) return name;
  const std::vector<Entry> entries = all_models(places);
  for (const Entry& entry : entries) {
    if (entry.name == name || entry.name + ".gguf" == name) return entry.path;
  }
  const std::string places_text =
      fmt::format("{} and {}", places.models_dir.empty() ? "(no models folder)" : places.models_dir,
                  places.hf_hub.empty() ? "(no Hugging Face cache)" : places.hf_hub);
  return base::bad_input("{}: no such {}; looked in the current directory, {}; {}{}", name,
                         looks_like_path(name) ? "file" : "model", places_text,
                         nearest_text(name, entries), fetch_text(name));
}

Result<std::string> list_unguarded(const ModelPlaces& places) {
  base::Json out = base::Json::array();
  for (const Entry& entry : all_models(places)) {
    out.push_back({{"name", entry.name},
                   {"path", entry.path},
                   {"kind", entry.kind},
                   {"bytes", bytes_of(entry.path)}});
  }
  return base::dump_json(out);
}

}  // namespace

Result<std::string> resolve_model(const std::string& name, const ModelPlaces& places) {
  return base::guarded("resolve_model", [&] { return resolve_model_unguarded(name, places); });
}

Result<std::string> list_json(const ModelPlaces& places) {
  return base::guarded("list_json", [&] { return list_unguarded(places); });
}

}  // namespace markbase::tools
