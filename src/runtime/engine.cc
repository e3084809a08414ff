// Engine: the public face of a loaded model.
#include "markbase/engine.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "runtime/chat_prompt.h"
#include "runtime/engine_access.h"
#include "runtime/engine_thread.h"
#include "runtime/generation.h"
#include "runtime/logits.h"
#include "runtime/request_prompt.h"

namespace markbase {

struct Engine::Impl {
  explicit Impl(std::unique_ptr<runtime::LoadedModel> loaded) : model(std::move(loaded)) {}
  ~Impl() { cancel_all(); }

  void remember(const std::shared_ptr<runtime::RequestState>& state) {
    const std::lock_guard lock(mutex);
    std::erase_if(requests, [](const auto& request) { return request.expired(); });
    requests.push_back(state);
  }
  void cancel_all() {
    const std::lock_guard lock(mutex);
    for (const auto& request : requests) {
      if (const auto state = request.lock()) state->cancel();
    }
  }

  std::unique_ptr<runtime::LoadedModel> model;
  ModelInfo info;
  std::mutex mutex;
  std::vector<std::weak_ptr<runtime::RequestState>> requests;
  runtime::EngineThread thread;  // last: it ends before what its jobs use
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

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::string& path, const EngineOptions& options) {
  MB_ASSIGN(auto model, runtime::load_model(path, options));
  auto impl = std::make_unique<Impl>(std::move(model));
  impl->info = describe(*impl->model);
  return Engine(std::move(impl));
}

const ModelInfo& Engine::info() const { return impl_->info; }

Result<std::vector<int32_t>> Engine::prompt_ids(const Request& request) const {
  return runtime::prompt_ids(request, *impl_->model);
}

Result<std::shared_ptr<RequestHandle>> Engine::submit(Request request, OnEvent on_event) {
  MB_TRY(runtime::check_request(request));
  MB_ASSIGN(std::vector<int32_t> ids, runtime::prompt_ids(request, *impl_->model));
  auto state = std::make_shared<runtime::RequestState>(std::move(request), std::move(ids),
                                                       std::move(on_event));
  impl_->remember(state);
  impl_->thread.post(
      [state, model = impl_->model.get()] { state->complete(runtime::generate(*model, *state)); });
  return std::shared_ptr<RequestHandle>(state);
}

Result<Completion> Engine::generate(Request request, OnEvent on_event) {
  MB_ASSIGN(const auto handle, submit(std::move(request), std::move(on_event)));
  return handle->wait();
}

Result<void> Engine::logits(std::span<const int32_t> ids, bool last_only, const OnLogits& on_row) {
  Result<void> result;
  EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
    result = runtime::stream_logits(model, ids, last_only, nullptr, on_row, model.progress);
  });
  return result;
}

Result<void> Engine::trace(std::span<const int32_t> ids, const std::string& only,
                           const OnTrace& on_trace, const OnLogits& on_row) {
  Result<void> result;
  EngineAccess::run(*this, [&](runtime::LoadedModel& model) {
    runtime::Tracer tracer(*model.backend.backend, only, on_trace);
    result = runtime::stream_logits(model, ids, false, &tracer, on_row, model.progress);
  });
  return result;
}

const runtime::LoadedModel& EngineAccess::model(const Engine& engine) {
  return *engine.impl_->model;
}

void EngineAccess::run(Engine& engine, const std::function<void(runtime::LoadedModel&)>& job) {
  Engine::Impl& impl = *engine.impl_;
  impl.thread.run([&] { job(*impl.model); });
}

}  // namespace markbase
