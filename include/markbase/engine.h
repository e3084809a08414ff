// Engine: a loaded model that answers requests.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "markbase/export.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase {

// Returns false to stop the answer. An exception ends the request with an error (kFailed).
using OnEvent = std::function<bool(const TokenEvent&)>;

// A request under way. Thread safe.
class MB_EXPORT RequestHandle {
 public:
  virtual ~RequestHandle() = default;
  virtual void cancel() = 0;
  // Blocks until every answer is complete; one of the two may be called, once. wait() gives the
  // first answer. Not from a callback.
  virtual Result<Completion> wait() = 0;
  virtual Result<std::vector<Completion>> wait_all() = 0;
};

struct ModelInfo {
  std::string path;
  std::string architecture;  // "gemma3_text"
  std::string backend;       // "cpu (avx2, 2 threads)"
  int64_t vocab_size = 0;
  int64_t context_tokens = 0;    // in this engine
  bool has_chat_format = false;  // messages are understood
  bool has_chat_template =
      false;                  // the files carry a template: `run` uses it unless told otherwise
  bool has_thinking = false;  // the chat format can ask the model to think
  bool has_tools = false;     // the chat format can offer tools
  SamplingOptions sampling_defaults;
  uint64_t weight_bytes = 0;            // packed, in memory
  uint64_t weight_bytes_per_token = 0;  // read for one decoded token
  double load_ms = 0;
};

// Row r of the logits; valid during the call only. Return an error to stop.
using OnLogits = std::function<Result<void>(int64_t position, std::span<const float> row)>;
// A named intermediate, float32 with its shape, outermost first: rows of positions. A prompt longer
// than a prefill chunk shows each name once a chunk, in the order of positions. Valid during the
// call only.
struct TraceTensor {
  std::string_view name;
  std::span<const int64_t> shape;
  std::span<const float> values;
};
using OnTrace = std::function<Result<void>(const TraceTensor&)>;

class MB_EXPORT Engine {
 public:
  // path: a directory or a .gguf file. Errors: kBadInput (broken or unsupported file), kOutOfMemory
  // (the plan is in the message), kUsage (an option this machine cannot honour).
  static Result<Engine> load(const std::string& path, const EngineOptions& options);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();  // ends every request with the reason "cancelled"

  const ModelInfo& info() const;

  // From any thread, callbacks included. Requests are stepped together; each answer is, bit for
  // bit, what it would be alone. on_event is called from the engine's thread, never under a lock
  // the caller can need, until the request has ended: what it refers to lives until wait() has
  // returned or the engine is gone. What it waits for delays every request. Errors: kUsage for a
  // parameter out of range or a prompt longer than the context, kOverloaded when the queue is full,
  // kOutOfMemory.
  Result<std::shared_ptr<RequestHandle>> submit(Request request, OnEvent on_event);
  // submit and wait: the first answer, or all of them. Not from a callback (kUsage, and nothing is
  // begun).
  Result<Completion> generate(Request request, OnEvent on_event = {});
  Result<std::vector<Completion>> generate_all(Request request, OnEvent on_event = {});

  // A vector of hidden_size values: the final normed hidden states of a text, pooled. Blocks; steps
  // of requests go on between its chunks. Not from a callback.
  Result<std::vector<float>> embed(const EmbedRequest& request);

  EngineStats stats() const;
  // Keeps the prefix cache in a file and brings it back: versioned, checksummed, refused
  // (kBadInput) for another model (weights or configuration) or another kind of cache. Saving takes
  // the place of nothing but such a file: whatever else stands at `path`, or at "<path>.part" where
  // it is written until it is whole, is left alone (kUsage). Restoring adds to what is there, as
  // far as there is room; returns the tokens that were kept or brought back.
  Result<int64_t> save_prefix_cache(const std::string& path);
  Result<int64_t> restore_prefix_cache(const std::string& path);

  // The ids a request starts from, without running it.
  Result<std::vector<int32_t>> prompt_ids(const Request& request) const;

  // Logits of every position (or the last only), after soft-cap, before any sampling.
  Result<void> logits(std::span<const int32_t> ids, bool last_only, const OnLogits& on_row);
  // Runs the composed ops and shows every intermediate whose name matches the glob `only` ("*":
  // all). `on_row` as in logits(); the rows equal those of logits() to the byte.
  Result<void> trace(std::span<const int32_t> ids, const std::string& only, const OnTrace& on_trace,
                     const OnLogits& on_row);

 private:
  struct MB_LOCAL Impl;
  MB_LOCAL explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  friend class EngineAccess;
};

}  // namespace markbase
