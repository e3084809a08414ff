// Engine: the public face of a loaded model.
#include "markbase/engine.h"

#include <vector>

#include "base/error.h"
#include "base/guard.h"
#include "runtime/chat_prompt.h"
#include "runtime/engine_access.h"
#include "runtime/engine_thread.h"
#include "runtime/generation.h"
#include "runtime/logits.h"
#include "runtime/request_prompt.h"

namespace markbase {

struct Engine::Impl {
  Impl(std::unique_ptr<runtime::LoadedModel> loaded, int64_t max_queue)
      : model(std::move(loaded)), thread(*model, max_queue) {}

  std::unique_ptr<runtime::LoadedModel> model;
  ModelInfo info;
  runtime::EngineThread thread;  // last: it ends before what it uses
};

namespace {

ModelInfo describe(const runtime::LoadedModel& model) {
  ModelInfo info;
  info.path = model.path.path;
  info.architecture = model.config.model_type;
  info.backend = model.backend.description;
  info.vocab_size = model.config.vocab_size;
  info.context_tokens = model.runner_options.context_tokens;
  info.has_chat_format = runtime::has_chat_format(*model.tokenizer);
  info.has_chat_template = !model.tokenizer->chat_template().empty();
  const runtime::ChatAbilities can = runtime::chat_abilities(*model.tokenizer);
  info.has_thinking = can.thinking;
  info.has_tools = can.tools;
  info.sampling_defaults = model.generation.sampling;
  info.weight_bytes = model.weights.total_bytes();
  info.weight_bytes_per_token = model.weights.bytes_per_token();
  info.load_ms = model.load_ms;
  return info;
}

Result<void> check_embedding(const EmbedRequest& request) {
  if (!request.ids.empty() && !request.text.empty()) {
    return base::usage_error("embedding: expected ids or a text, got both");
  }
  if (request.pooling != Pooling::kMean && request.pooling != Pooling::kLast) {
    return base::usage_error("pooling: expected one of those that there are, got number {}",
                             static_cast<int>(request.pooling));
  }
  return {};
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::string& path, const EngineOptions& options) {
  return base::guarded("load", [&]() -> Result<Engine> {
    MB_ASSIGN(auto model, runtime::load_model(path, options));
    auto impl = std::make_unique<Impl>(std::move(model), options.max_queue);
    impl->info = describe(*impl->model);
    return Engine(std::move(impl));
  });
}

const ModelInfo& Engine::info() const { return impl_->info; }

EngineStats Engine::stats() const { return impl_->thread.stats(); }

Result<std::vector<int32_t>> Engine::prompt_ids(const Request& request) const {
  return base::guarded("prompt_ids", [&]() -> Result<std::vector<int32_t>> {
    return runtime::prompt_ids(request, *impl_->model);
  });
}

Result<std::shared_ptr<RequestHandle>> Engine::submit(Request request, OnEvent on_event) {
  return base::guarded("submit", [&]() -> Result<std::shared_ptr<RequestHandle>> {
    MB_TRY(runtime::check_request(request));
    MB_ASSIGN(std::vector<int32_t> ids, runtime::prompt_ids(request, *impl_->model));
    auto state = std::make_shared<runtime::RequestState>(std::move(request), std::move(ids),
                                                         std::move(on_event), impl_->thread.id());
    MB_TRY(impl_->thread.submit(state));
    return std::shared_ptr<RequestHandle>(state);
  });
}

Result<Completion> Engine::generate(Request request, OnEvent on_event) {
  return base::guarded("generate", [&]() -> Result<Completion> {
    MB_TRY(impl_->thread.check_may_wait("generate()"));
    MB_ASSIGN(const auto handle, submit(std::move(request), std::move(on_event)));
    return handle->wait();
  });
}

Result<std::vector<Completion>> Engine::generate_all(Request request, OnEvent on_event) {
  return base::guarded("generate_all", [&]() -> Result<std::vector<Completion>> {
    MB_TRY(impl_->thread.check_may_wait("generate_all()"));
    MB_ASSIGN(const auto handle, submit(std::move(request), std::move(on_event)));
    return handle->wait_all();
  });
}

Result<void> Engine::logits(std::span<const int32_t> ids, bool last_only, const OnLogits& on_row) {
  return base::guarded("logits", [&]() -> Result<void> {
    Result<void> result;
    MB_TRY(EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
      result = runtime::stream_logits(model, ids, last_only, nullptr, on_row, model.progress);
    }));
    return result;
  });
}

Result<std::vector<float>> Engine::embed(const EmbedRequest& request) {
  return base::guarded("embed", [&]() -> Result<std::vector<float>> {
    MB_TRY(impl_->thread.check_may_wait("embed()"));
    MB_TRY(check_embedding(request));
    Request text;
    text.ids = request.ids;
    text.text = request.text;
    text.text_is_set = true;
    MB_ASSIGN(std::vector<int32_t> ids, runtime::prompt_ids(text, *impl_->model));
    runtime::Pooler empty(request.pooling, impl_->model->config.hidden_size);
    auto state = std::make_shared<runtime::RequestState>(std::move(ids), std::move(empty),
                                                         impl_->thread.id());
    MB_TRY(impl_->thread.submit(state));
    MB_ASSIGN(const Completion done, state->wait());
    if (done.finish_reason != "stop") {
      return Error{ErrorCode::kCancelled, "the engine ended before the text was read"};
    }
    return state->pooler->vector(request.normalise);
  });
}

Result<int64_t> Engine::save_prefix_cache(const std::string& path) {
  return base::guarded("save_prefix_cache", [&]() -> Result<int64_t> {
    Result<int64_t> tokens = 0;
    MB_TRY(EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
      tokens = model.runner->save_prefixes(path, model.fingerprint);
    }));
    return tokens;
  });
}

Result<int64_t> Engine::restore_prefix_cache(const std::string& path) {
  return base::guarded("restore_prefix_cache", [&]() -> Result<int64_t> {
    Result<int64_t> tokens = 0;
    MB_TRY(EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
      tokens = model.runner->restore_prefixes(path, model.fingerprint);
    }));
    return tokens;
  });
}

Result<void> Engine::trace(std::span<const int32_t> ids, const std::string& only,
                           const OnTrace& on_trace, const OnLogits& on_row) {
  return base::guarded("trace", [&]() -> Result<void> {
    Result<void> result;
    MB_TRY(EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
      runtime::Tracer tracer(*model.backend.backend, only, on_trace);
      result = runtime::stream_logits(model, ids, false, &tracer, on_row, model.progress);
    }));
    return result;
  });
}

const runtime::LoadedModel& EngineAccess::model(const Engine& engine) {
  return *engine.impl_->model;
}

Result<void> EngineAccess::run(Engine& engine,
                               const std::function<void(runtime::LoadedModel&)>& job) {
  Engine::Impl& impl = *engine.impl_;
  return impl.thread.run([&] { job(*impl.model); });
}

}  // namespace markbase
