// Embeddings, statistics and the prefix cache.
#include "base/error.h"
#include "capi/door.h"
#include "capi/handles.h"
#include "capi/structs.h"

namespace markbase::capi {
namespace {

static_assert(static_cast<int>(Pooling::kMean) == MB_POOLING_MEAN);
static_assert(static_cast<int>(Pooling::kLast) == MB_POOLING_LAST);

mb_embed_request default_embedding() {
  const EmbedRequest request;
  mb_embed_request to = {};
  to.size = sizeof(to);
  to.pooling = static_cast<mb_pooling>(request.pooling);
  to.normalise = request.normalise ? 1 : 0;
  return to;
}

Result<EmbedRequest> embedding_of(const mb_embed_request* request) {
  MB_ASSIGN(const mb_embed_request from, read_struct(request, default_embedding(), "request"));
  EmbedRequest to;
  MB_ASSIGN(const auto ids, items_of(from.ids, from.num_ids, "ids"));
  to.ids.assign(ids.begin(), ids.end());
  MB_ASSIGN(to.text, text_of(from.text, "text"));
  if (ids.empty() == (from.text.data == nullptr)) {
    return base::usage_error("request: expected one of ids and text, got {}",
                             ids.empty() ? "none" : "both");
  }
  if (from.pooling != MB_POOLING_MEAN && from.pooling != MB_POOLING_LAST) {
    return base::usage_error("pooling: expected 0 or 1 (MB_POOLING_...), got {}", from.pooling);
  }
  to.pooling = static_cast<Pooling>(from.pooling);
  MB_ASSIGN(to.normalise, flag(from.normalise, "normalise"));
  return to;
}

mb_engine_stats view_of(const EngineStats& stats) {
  mb_engine_stats to = {};
  to.running = stats.running;
  to.waiting = stats.waiting;
  to.steps = stats.steps;
  to.prompt_tokens = stats.prompt_tokens;
  to.cached_tokens = stats.cached_tokens;
  to.generated_tokens = stats.generated_tokens;
  to.preemptions = stats.preemptions;
  to.kv_blocks = stats.kv_blocks;
  to.kv_blocks_used = stats.kv_blocks_used;
  to.kv_blocks_kept = stats.kv_blocks_kept;
  to.step_ms = stats.step_ms;
  to.scheduling_ms = stats.scheduling_ms;
  return to;
}

}  // namespace
}  // namespace markbase::capi

using namespace markbase;        // NOLINT: the C functions stand outside
using namespace markbase::capi;  // NOLINT

mb_status mb_embed_request_init(mb_embed_request* request, size_t size, mb_error** error) {
  return door("mb_embed_request_init", error,
              [&] { return init_struct(default_embedding(), request, size, "request"); });
}

mb_status mb_embed(mb_engine* engine, const mb_embed_request* request, float** values,
                   size_t* num_values, mb_error** error) {
  return door("mb_embed", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(values, "values"));
    MB_TRY(need(num_values, "num_values"));
    MB_ASSIGN(const EmbedRequest asked, embedding_of(request));
    MB_ASSIGN(const std::vector<float> list, engine->engine.embed(asked));
    MB_ASSIGN(*values, copy_of(list));
    *num_values = list.size();
    return {};
  });
}

mb_status mb_engine_get_stats(const mb_engine* engine, mb_engine_stats* stats, mb_error** error) {
  return door("mb_engine_get_stats", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    return write_struct(view_of(engine->engine.stats()), stats, "stats");
  });
}

mb_status mb_save_prefix_cache(mb_engine* engine, const char* path, int64_t* num_tokens,
                               mb_error** error) {
  return door("mb_save_prefix_cache", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(path, "path"));
    MB_ASSIGN(const int64_t kept, engine->engine.save_prefix_cache(path));
    if (num_tokens != nullptr) *num_tokens = kept;
    return {};
  });
}

mb_status mb_restore_prefix_cache(mb_engine* engine, const char* path, int64_t* num_tokens,
                                  mb_error** error) {
  return door("mb_restore_prefix_cache", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_TRY(need(path, "path"));
    MB_ASSIGN(const int64_t restored, engine->engine.restore_prefix_cache(path));
    if (num_tokens != nullptr) *num_tokens = restored;
    return {};
  });
}
