// What the tools of this room may reach inside an engine.
#pragma once

#include <functional>

#include "markbase/engine.h"
#include "runtime/loaded_model.h"

namespace markbase {

class EngineAccess {
 public:
  static const runtime::LoadedModel& model(const Engine& engine);
  // Runs `job` on the engine's thread, with the model for itself: requests wait meanwhile. Errors:
  // kUsage from a callback of a request.
  static Result<void> run(Engine& engine, const std::function<void(runtime::LoadedModel&)>& job);
};

}  // namespace markbase
