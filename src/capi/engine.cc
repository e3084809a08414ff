#include "markbase/engine.h"

#include "base/error.h"
#include "capi/door.h"
#include "capi/handles.h"
#include "capi/structs.h"

namespace markbase::capi {
namespace {

static_assert(static_cast<int>(BackendKind::kAuto) == MB_BACKEND_AUTO);
static_assert(static_cast<int>(BackendKind::kCpu) == MB_BACKEND_CPU);
static_assert(static_cast<int>(BackendKind::kCuda) == MB_BACKEND_CUDA);
static_assert(static_cast<int>(BackendKind::kRef) == MB_BACKEND_REF);
static_assert(static_cast<int>(Progress::Unit::kBytes) == MB_UNIT_BYTES);
static_assert(static_cast<int>(Progress::Unit::kTokens) == MB_UNIT_TOKENS);
static_assert(static_cast<int>(Progress::Unit::kRuns) == MB_UNIT_RUNS);
static_assert(static_cast<int>(Severity::kDebug) == MB_SEVERITY_DEBUG);
static_assert(static_cast<int>(Severity::kInfo) == MB_SEVERITY_INFO);
static_assert(static_cast<int>(Severity::kWarning) == MB_SEVERITY_WARNING);

// The texts of the defaults outlive the library's users: they are constants of the C++ API.
mb_engine_options default_options() {
  const EngineOptions options;
  mb_engine_options to = {};
  to.size = sizeof(to);
  to.backend = static_cast<mb_backend>(options.backend);
  to.num_threads = options.num_threads;
  to.cpu_isa = "auto";
  to.context_tokens = options.context_tokens;
  to.kv = "auto";
  to.prefill_chunk_tokens = options.prefill_chunk_tokens;
  to.max_sequences = options.max_sequences;
  to.max_queue = options.max_queue;
  to.prefix_cache = options.prefix_cache ? 1 : 0;
  to.repack_cache = options.repack_cache ? 1 : 0;
  to.memory_bytes = options.memory_bytes;
  to.activations = "auto";
  return to;
}

Result<std::string> option_text(const char* text, std::string_view name) {
  MB_TRY(need(text, name));
  return std::string(text);
}

Result<BackendKind> backend_of(mb_backend backend) {
  if (backend >= MB_BACKEND_AUTO && backend <= MB_BACKEND_REF) {
    return static_cast<BackendKind>(backend);
  }
  return base::usage_error("backend: expected 0 to 3 (MB_BACKEND_...), got {}", backend);
}

void take_callbacks(const mb_engine_options& from, EngineOptions* to) {
  if (from.on_progress != nullptr) {
    to->progress = [call = from.on_progress, user = from.progress_user](const Progress& p) {
      const std::string what(p.what);
      const mb_progress shown = {sizeof(shown), c_text(what), p.done, p.total,
                                 static_cast<mb_unit>(p.unit)};
      call(&shown, user);
    };
  }
  if (from.on_message != nullptr) {
    to->message = [call = from.on_message, user = from.message_user](Severity severity,
                                                                     std::string_view message) {
      const std::string text(message);
      call(static_cast<mb_severity>(severity), c_text(text), user);
    };
  }
}

Result<EngineOptions> options_of(const mb_engine_options* options) {
  EngineOptions to;
  if (options == nullptr) return to;
  MB_ASSIGN(const mb_engine_options from, read_struct(options, default_options(), "options"));
  MB_ASSIGN(to.backend, backend_of(from.backend));
  to.num_threads = from.num_threads;
  MB_ASSIGN(to.cpu_isa, option_text(from.cpu_isa, "cpu_isa"));
  to.context_tokens = from.context_tokens;
  MB_ASSIGN(to.kv, option_text(from.kv, "kv"));
  to.prefill_chunk_tokens = from.prefill_chunk_tokens;
  to.max_sequences = from.max_sequences;
  to.max_queue = from.max_queue;
  MB_ASSIGN(to.prefix_cache, flag(from.prefix_cache, "prefix_cache"));
  MB_ASSIGN(to.repack_cache, flag(from.repack_cache, "repack_cache"));
  to.memory_bytes = from.memory_bytes;
  MB_ASSIGN(to.activations, option_text(from.activations, "activations"));
  take_callbacks(from, &to);
  return to;
}

mb_model_info view_of(const ModelInfo& info) {
  mb_model_info to = {};
  to.path = c_text(info.path);
  to.architecture = c_text(info.architecture);
  to.backend = c_text(info.backend);
  to.vocab_size = info.vocab_size;
  to.context_tokens = info.context_tokens;
  to.has_chat_format = info.has_chat_format ? 1 : 0;
  to.has_chat_template = info.has_chat_template ? 1 : 0;
  to.has_thinking = info.has_thinking ? 1 : 0;
  to.has_tools = info.has_tools ? 1 : 0;
  to.weight_bytes = info.weight_bytes;
  to.weight_bytes_per_token = info.weight_bytes_per_token;
  to.load_ms = info.load_ms;
  to.temperature = info.sampling_defaults.temperature;
  to.top_k = info.sampling_defaults.top_k;
  to.top_p = info.sampling_defaults.top_p;
  to.min_p = info.sampling_defaults.min_p;
  to.repetition_penalty = info.sampling_defaults.repetition_penalty;
  return to;
}

}  // namespace
}  // namespace markbase::capi

using namespace markbase;        // NOLINT: the C functions stand outside
using namespace markbase::capi;  // NOLINT

mb_status mb_engine_options_init(mb_engine_options* options, size_t size, mb_error** error) {
  return door("mb_engine_options_init", error,
              [&] { return init_struct(default_options(), options, size, "options"); });
}

mb_status mb_engine_load(const char* path, const mb_engine_options* options, mb_engine** engine,
                         mb_error** error) {
  return door("mb_engine_load", error, [&]() -> Result<void> {
    MB_TRY(need(path, "path"));
    MB_TRY(need(engine, "engine"));
    MB_ASSIGN(const EngineOptions taken, options_of(options));
    MB_ASSIGN(Engine loaded, Engine::load(path, taken));
    *engine = new mb_engine{std::move(loaded)};
    return {};
  });
}

void mb_engine_free(mb_engine* engine) { delete engine; }

mb_status mb_engine_model_info(const mb_engine* engine, mb_model_info* info, mb_error** error) {
  return door("mb_engine_model_info", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    return write_struct(view_of(engine->engine.info()), info, "info");
  });
}

mb_status mb_logits(mb_engine* engine, const int32_t* ids, size_t num_ids, int32_t last_only,
                    mb_on_logits on_row, void* user, mb_error** error) {
  return door("mb_logits", error, [&]() -> Result<void> {
    MB_TRY(need(engine, "engine"));
    MB_ASSIGN(const auto prompt, items_of(ids, num_ids, "ids"));
    MB_ASSIGN(const bool last, flag(last_only, "last_only"));
    if (on_row == nullptr) return base::usage_error("on_row: expected a function, got NULL");
    return engine->engine.logits(
        prompt, last, [&](int64_t position, std::span<const float> row) -> Result<void> {
          if (on_row(position, row.data(), row.size(), user) != 0) return {};
          return Error{ErrorCode::kCancelled, "logits: stopped by the callback"};
        });
  });
}
