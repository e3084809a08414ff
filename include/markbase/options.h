// How to load a model and what to ask of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"

namespace markbase {

enum class BackendKind { kAuto, kCpu, kCuda, kRef };

// One step of something that takes a while ("packing", "keeping", "reading the prompt"). What ends
// early, because it failed or was stopped, ends with done = total all the same.
struct Progress {
  enum class Unit { kBytes, kTokens, kRuns };
  std::string_view what;
  uint64_t done = 0;
  uint64_t total = 0;
  Unit unit = Unit::kBytes;
};

enum class Severity { kDebug, kInfo, kWarning };

// What an engine takes; load and submit refuse what is beyond.
inline constexpr int kMostThreads = 256;
inline constexpr int64_t kMostPrefillChunkTokens = 65536;
inline constexpr int64_t kMostSequences = 1024;
inline constexpr int64_t kMostQueue = 1'000'000'000;  // counts stay far from the end of their type
inline constexpr float kMostTemperature = 1e6F;
inline constexpr float kLeastPenalty = 1e-3F;  // logits divided by less leave the range of floats
inline constexpr float kMostPenalty = 1e6F;
inline constexpr int kMostAnswers = 64;      // to one request
inline constexpr int kMostTopLogprobs = 20;  // at one place
// Some thirty years: later moments do not fit the clock.
inline constexpr int64_t kMostTimeoutMs = 1'000'000'000'000;

struct EngineOptions {
  BackendKind backend = BackendKind::kAuto;
  int num_threads = 0;           // at most kMostThreads; 0: the cores this process may use
  std::string cpu_isa = "auto";  // auto|generic|avx2|avxvnni|avx512|vnni|amx
  int64_t context_tokens = 0;    // 0: the model's limit, or less where memory_bytes demands it
  std::string kv = "auto";  // auto|f16|bf16|f32|q8; auto: f16, and f32 on the reference backend
  int64_t prefill_chunk_tokens = 512;  // 1 to kMostPrefillChunkTokens
  int64_t max_sequences = 8;  // answers that step together (1 to kMostSequences); more wait
  // Answers that wait for a place (0 to kMostQueue); beyond, submit refuses.
  int64_t max_queue = 256;
  bool prefix_cache = true;          // keep what prompts and answers have in common with later ones
  uint64_t memory_bytes = 0;         // budget; 0: what the machine has free
  std::string activations = "auto";  // auto|16|q8; auto: 16
  // Keep the packed weights in a file beside the model (as large as they are) and read them from it
  // the next time. A file that does not belong to the model is made anew.
  bool repack_cache = false;
  // From the loading thread; later, for each chunk of a prompt, from the engine's. May be empty.
  std::function<void(const Progress&)> progress;
  std::function<void(Severity, std::string_view)> message;  // plans and warnings, may be empty
};

struct SamplingOptions {
  float temperature = 1.0F;  // 0: greedy; at most kMostTemperature
  int top_k = 0;             // 0: off
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;  // kLeastPenalty to kMostPenalty; 1: off
  uint64_t seed = 0;
};

// A call of a tool that the model asks for.
struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text of an object
  std::string id = {};    // links a result to its call; models write none
};

// A call as it was written that cannot be read as one.
struct BrokenCall {
  std::string text;
  std::string why;
  bool truncated = false;  // the length limit cut it
};

// A piece of an output as it is taken apart.
struct OutputPiece {
  enum class Kind { kContent, kReasoning, kToolCall };
  Kind kind = Kind::kContent;
  std::string text;  // never ends inside a character
  ToolCall call;     // of kToolCall
};

struct Message {
  std::string role;  // "system", "user", "assistant"; where the format has them "developer", "tool"
  std::string content;
  std::string reasoning = {};             // what an assistant thought before it answered
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool's result: the call that it answers
};

// What to answer: one of ids, text and messages.
struct Request {
  std::vector<int32_t> ids;       // as they are; no BOS is added
  std::string text;               // plain continuation: BOS once, then the text
  bool text_is_set = false;       // an empty text is a request too
  bool parse_special = false;     // control-token spellings in `text` become tokens
  std::vector<Message> messages;  // through the model's chat format
  std::string tools;              // JSON list of tools for the model to call, with messages only
  bool enable_thinking = false;   // let the model think first, with messages only
  int64_t max_tokens = -1;        // -1: until a stop or the end of the context
  SamplingOptions sampling;
  // Stop strings end the answer and are removed from it; they may straddle tokens. Thoughts and
  // calls are not searched.
  std::vector<std::string> stop;
  bool ignore_eos = false;
  uint32_t answer_idx = 0;  // which of several answers to the same prompt (keys the random numbers)
  // So many answers (1 to kMostAnswers) to the one prompt, numbered answer_idx, answer_idx + 1,
  // ...: each is what it would be alone.
  int num_answers = 1;
  // Log probabilities of the tokens chosen and of so many of the likeliest at each place (0 to
  // kMostTopLogprobs; fewer where the vocabulary is smaller); -1: none.
  // They are of the model's own distribution, before penalties, temperature and filters.
  int top_logprobs = -1;
  int priority = 0;  // higher ones are served first
  // From submit; then the answer ends with "timeout". 0: none; at most kMostTimeoutMs.
  int64_t timeout_ms = 0;
};

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;
};
// Of one generated token.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // likeliest first, ties by id
};

struct Timings {
  double load_ms = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, that were not computed again
  double queue_ms = 0;        // from submit to the first step
  double prompt_ms = 0;       // from there to the first token
  double ttft_ms = 0;         // from submit to the first token
  int64_t generated_tokens = 0;
  double decode_ms = 0;     // from the first token to the last
  double tokens_per_s = 0;  // (generated_tokens - 1) / decode time
};

struct Completion {
  std::string text;  // the answer: without thoughts and calls, calls that cannot be read included
  std::string reasoning;            // thoughts
  std::vector<std::string> labels;  // of channels of thought that are not called "thought"
  std::vector<ToolCall> tool_calls;
  std::vector<BrokenCall> broken_calls;
  std::vector<int32_t> ids;  // generated, the stop id not included
  std::vector<int32_t> prompt_ids;
  std::string finish_reason;            // "stop", "length", "tool_calls", "cancelled", "timeout"
  std::vector<TokenLogprobs> logprobs;  // one for each id, if asked for
  uint32_t answer_idx = 0;
  Timings timings;
};

// A piece of an answer as it comes; text never ends inside a character and never holds part of a
// stop string.
struct TokenEvent {
  std::string_view text;
  int32_t id =
      -1;  // of the first event of a token; -1 for more of the same and for what was held back
  OutputPiece::Kind kind = OutputPiece::Kind::kContent;
  const ToolCall* call = nullptr;  // of a call, which comes when it is whole; its text is empty
  uint32_t answer_idx = 0;
  const TokenLogprobs* logprobs = nullptr;  // with `id`, if asked for
};

// How hidden states of a text become one vector.
enum class Pooling { kMean, kLast };
// What to embed: ids as they are, or a text with BOS; one of them.
struct EmbedRequest {
  std::vector<int32_t> ids;
  std::string text;
  Pooling pooling = Pooling::kMean;
  bool normalise = true;  // to length 1
};

// What an engine has done and is doing.
struct EngineStats {
  int64_t running = 0;  // answers that step
  int64_t waiting = 0;  // answers that wait for a place, preempted ones included
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed
  int64_t cached_tokens = 0;  // of prompts, not computed
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t kv_blocks = 0;       // of all pools
  int64_t kv_blocks_used = 0;  // by answers under way
  int64_t kv_blocks_kept = 0;  // by the prefix cache alone
  double step_ms = 0;          // inside the model
  double scheduling_ms = 0;    // around it: choosing rows, text, callbacks
};

}  // namespace markbase
