// Weights from the file into the backend, tensor by tensor.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "runtime/loaded_model.h"
#include "runtime/repack_cache.h"

namespace markbase::runtime {
namespace {

uint64_t source_bytes(const quant::WeightView& view) {
  return view.data.size() + view.scales.size() + view.biases.size();
}

// Rows [begin, end) of a piece that holds `rows` rows of equal size.
std::span<const std::byte> rows_of(std::span<const std::byte> bytes, int64_t rows, int64_t begin,
                                   int64_t end) {
  if (bytes.empty() || rows == 0) return {};
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows);
  return bytes.subspan(static_cast<size_t>(begin) * row_bytes,
                       static_cast<size_t>(end - begin) * row_bytes);
}

class Loader {
 public:
  Loader(const formats::WeightSource& source, const model::TextConfig& config,
         const model::WeightMap& map, const BackendHandle& backend,
         const std::function<void(const Progress&)>& progress)
      : source_(source),
        map_(map),
        backend_(*backend.backend),
        pool_(*backend.pool),
        progress_(progress),
        weights_(config),
        router_factor_(1.0F / std::sqrt(static_cast<float>(config.hidden_size))) {
    weights_.embed_scale = map.embed_scale;
    weights_.per_layer_embed_scale = map.per_layer_embed_scale;
    for (const model::MappedWeight& weight : map.weights) {
      if (!model::is_mapped_table(weight)) total_bytes_ += source_bytes(weight.view);
    }
  }

  Result<model::TextWeights> pack_all() {
    MB_TRY(load_vectors());
    for (size_t i = 0; i < map_.weights.size(); ++i) {
      const model::MappedWeight& weight = map_.weights[i];
      if (!model::is_packed(weight)) continue;
      const bool packed_next = i + 1 < map_.weights.size() && is_packed(map_.weights[i + 1]);
      if (packed_next) source_.prefetch(map_.weights[i + 1].view.data);
      MB_TRY(pack(weight));
    }
    // Zeros that stood for pages that vanished must not become weights.
    MB_TRY(source_.check_intact());
    return std::move(weights_);
  }

  // The same weights where they lie in a cache.
  Result<model::TextWeights> restore_all(const RepackCache& cache) {
    std::vector<RepackCache::Wanted> wanted;
    uint64_t total_bytes = 0;
    for (const model::MappedWeight& weight : map_.weights) {
      if (!model::is_packed(weight)) continue;
      wanted.push_back({weight.name, backend_.packed_bytes(weight.view)});
      total_bytes += wanted.back().size_bytes;
    }
    MB_ASSIGN(const auto contents, cache.contents(wanted, pool_, [&](uint64_t done_bytes) {
      if (progress_) progress_({"checking packed weights", done_bytes, total_bytes});
    }));
    MB_TRY(load_vectors());
    auto content = contents.begin();
    for (const model::MappedWeight& weight : map_.weights) {
      if (!model::is_packed(weight)) continue;
      MB_ASSIGN(*weights_.matrix_slot(weight), backend_.restore(weight.view, *content++));
    }
    MB_TRY(source_.check_intact());
    return std::move(weights_);
  }

 private:
  // Norms and scales in one allocation, as float32; the table that stays where it is mapped.
  Result<void> load_vectors() {
    base::Arena counter;
    carve_vectors(counter);
    MB_ASSIGN(weights_.vectors, backend_.allocate(counter.used_bytes()));
    base::Arena arena(
        {static_cast<std::byte*>(weights_.vectors->data()), weights_.vectors->size_bytes()});
    carve_vectors(arena);
    for (const model::MappedWeight& weight : map_.weights) {
      if (weight.is_vector) MB_TRY(load_vector(weight));
      if (!model::is_mapped_table(weight)) continue;
      Result<std::unique_ptr<ops::PackedWeight>> table =
          backend_.map_table(weight.view, weight.source_name);
      if (!table.ok()) return in_file(table.error());
      *weights_.matrix_slot(weight) = *std::move(table);
    }
    return {};
  }

  Result<void> load_vector(const model::MappedWeight& weight) {
    values_.resize(static_cast<size_t>(weight.view.cols));
    quant::decode_row(weight.view, 0, values_);
    for (float& value : values_) value = adjusted(weight.id, value);
    if (std::any_of(values_.begin(), values_.end(), [](float v) { return !(v - v == 0.0F); })) {
      return in_file(
          base::bad_input("{}: expected finite weights, got NaN or infinity", weight.source_name));
    }
    if (weight.id == model::WeightId::kLayerScalar) {
      weights_.layers[static_cast<size_t>(weight.layer)].layer_scalar = values_[0];
    } else {
      backend_.upload(weights_.vector_slot(weight)->data,
                      std::as_bytes(std::span<const float>(values_)));
    }
    tell(source_bytes(weight.view));
    return {};
  }

  // What the model means by a number of the file.
  float adjusted(model::WeightId id, float value) const {
    switch (id) {
      case model::WeightId::kLayerScalar:
      case model::WeightId::kPerExpertScale:
        return value;
      case model::WeightId::kRouterScale:
        return value * router_factor_;
      default:
        return value + map_.norm_offset;
    }
  }

  void carve_vectors(base::Arena& arena) {
    for (const model::MappedWeight& weight : map_.weights) {
      tensor::TensorView* slot = weight.is_vector ? weights_.vector_slot(weight) : nullptr;
      if (slot == nullptr) continue;
      float* data = arena.take_array<float>(static_cast<size_t>(weight.view.cols));
      *slot = tensor::make_view(data, tensor::DType::kF32, {weight.view.cols}, backend_.device());
    }
  }

  Error in_file(Error error) const {
    error.message = source_.files().front() + ": " + error.message;
    return error;
  }

  Result<void> pack(const model::MappedWeight& weight) {
    const quant::WeightView& view = weight.view;
    const uint64_t begin_bytes = done_bytes_;
    const auto rows_done = [&](int64_t begin, int64_t end) {
      source_.release(rows_of(view.data, view.rows, begin, end));
      const auto share = static_cast<double>(end) / static_cast<double>(view.rows);
      done_bytes_ =
          begin_bytes + static_cast<uint64_t>(share * static_cast<double>(source_bytes(view)));
      tell(0);
    };
    auto packed = backend_.pack(view, weight.source_name, rows_done);
    if (!packed.ok()) return in_file(packed.error());
    *weights_.matrix_slot(weight) = *std::move(packed);
    source_.release(view.data);
    source_.release(view.scales);
    source_.release(view.biases);
    done_bytes_ = begin_bytes;
    tell(source_bytes(view));
    return {};
  }

  void tell(uint64_t more_bytes) {
    done_bytes_ += more_bytes;
    if (progress_) progress_({"packing", done_bytes_, total_bytes_});
  }

  const formats::WeightSource& source_;
  const model::WeightMap& map_;
  ops::Backend& backend_;
  base::ThreadPool& pool_;
  const std::function<void(const Progress&)>& progress_;
  model::TextWeights weights_;
  const float router_factor_;  // hidden_size^-1/2
  std::vector<float> values_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

void tell_user(const EngineOptions& options, Severity severity, const std::string& text) {
  if (options.message) options.message(severity, text);
}

// What a model is packed from and where its cache stands.
struct CachePlace {
  std::string path;
  RepackKey key;
};
CachePlace cache_place(const formats::WeightSource& source, const model::WeightMap& map,
                       const BackendHandle& backend) {
  const std::string layout = backend.backend->packed_layout();
  return {repack_path(source, layout), repack_key(source, map, layout)};
}

void keep_weights(const CachePlace& place, const model::WeightMap& map, model::TextWeights& weights,
                  const BackendHandle& backend, const EngineOptions& options) {
  std::vector<NamedContent> contents;
  for (const model::MappedWeight& weight : map.weights) {
    if (!model::is_packed(weight)) continue;
    contents.push_back(
        {weight.name, backend.backend->packed_content(**weights.matrix_slot(weight))});
  }
  uint64_t total_bytes = 0;
  for (const NamedContent& content : contents) total_bytes += content.bytes.size();
  const Result<bool> written =
      write_repack_cache(place.path, place.key, contents, *backend.pool, [&](uint64_t done_bytes) {
        if (options.progress) options.progress({"keeping", done_bytes, total_bytes});
      });
  if (!written.ok()) return tell_user(options, Severity::kWarning, written.error().message);
  tell_user(options, Severity::kInfo,
            *written ? "packed weights kept in " + place.path
                     : place.path + ": another process is writing it");
}

}  // namespace

std::optional<RepackCache> open_repack_cache(const formats::WeightSource& source,
                                             const model::WeightMap& map,
                                             const BackendHandle& backend,
                                             const EngineOptions& options) {
  if (!options.repack_cache) return std::nullopt;
  const CachePlace place = cache_place(source, map, backend);
  std::error_code ignored;  // what cannot be asked for cannot be read: packed and told below
  if (!std::filesystem::exists(place.path, ignored)) return std::nullopt;
  Result<RepackCache> cache = RepackCache::open(place.path, place.key);
  if (cache.ok()) return *std::move(cache);
  tell_user(options, Severity::kWarning, "packing again: " + cache.error().message);
  return std::nullopt;
}

Result<LoadedWeights> load_weights(const formats::WeightSource& source,
                                   const model::TextConfig& config, const model::WeightMap& map,
                                   const BackendHandle& backend, const EngineOptions& options,
                                   std::optional<RepackCache> cache) {
  if (cache) {
    auto restored = Loader(source, config, map, backend, options.progress).restore_all(*cache);
    if (restored.ok()) {
      tell_user(options, Severity::kDebug, "packed weights mapped from " + cache->file().path());
      return LoadedWeights{std::move(cache->file()), *std::move(restored)};
    }
    if (restored.error().code == ErrorCode::kOutOfMemory) return restored.error();
    tell_user(options, Severity::kWarning, "packing again: " + restored.error().message);
    cache.reset();
  }
  Loader loader(source, config, map, backend, options.progress);
  MB_ASSIGN(model::TextWeights weights, loader.pack_all());
  if (options.repack_cache) {
    keep_weights(cache_place(source, map, backend), map, weights, backend, options);
  }
  return LoadedWeights{std::nullopt, std::move(weights)};
}

}  // namespace markbase::runtime
