// A log that is handed in, never global. Messages go to a sink (stderr by default at the command
// line).
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string_view>

namespace markbase::base {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;
  Log() = default;  // says nothing
  Log(LogLevel level, Sink sink) : level_(level), sink_(std::move(sink)) {}

  bool enabled(LogLevel level) const { return sink_ && level >= level_; }
  template <class... Args>
  void operator()(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (enabled(level)) sink_(level, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  LogLevel level_ = LogLevel::kOff;
  Sink sink_;
};

// Writes "markbase: warning: ..." lines to stderr through spdlog, thread safe.
Log stderr_log(LogLevel level);

}  // namespace markbase::base
