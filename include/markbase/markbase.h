// The C API: a loaded model that answers requests. C11 and C++, over the same engine as the C++
// headers; docs/library.md is the guide.
//
// Structs. Every struct that may grow begins with `size`: the caller sets it to sizeof of the
// struct (the *_init functions do), so that a program keeps working with a library that knows more
// fields. Fields that the caller's struct does not have take their defaults. A struct that is
// larger than the library knows is refused, unless what the library does not know is all zero. In
// an array of such structs all have the same `size`.
//
// Errors. Functions return MB_OK or what went wrong. `error` may be NULL; otherwise it is set to
// NULL or to an error that the caller frees with mb_error_free(). On an error no other output is
// set. A NULL where a value is needed, a parameter out of range, and one that this model cannot
// honour are MB_USAGE; nothing is ignored. No C++ exception leaves a function.
//
// Ownership. What a function puts into a handle (mb_engine**, ...) is the caller's, who frees it by
// the function named there; *_free(NULL) does nothing. Plain arrays and texts (int32_t**, char**,
// float**) are freed with mb_free(). An mb_string in an output struct belongs to the handle that
// was asked and lives as long; in a callback, and in a request, for the duration of the call.
//
// Threads. An engine, a request handle, completions and a tokenizer may be used from several
// threads at once; who frees one of them is the last to use it. Callbacks come from the engine's
// thread (those of loading: from the thread that loads) and never under a lock that the caller can
// need; all requests wait for them. A callback may submit and cancel. It must not wait, embed, ask
// for logits, or free an engine, nor leave by longjmp or an exception. A thread must not be
// cancelled (pthread_cancel) inside a function.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "markbase/export.h"
#include "markbase/version.h"

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): C names carry the prefix of the library.

// ---- Status and errors ------------------------------------------------------------------------

typedef int32_t mb_status;
enum {
  MB_OK = 0,
  MB_FAILED = 1,         // the machine: disk, device, a closed pipe
  MB_USAGE = 2,          // a parameter out of range, or one that this model cannot honour
  MB_BAD_INPUT = 3,      // a model or input file that is broken or unsupported
  MB_OUT_OF_MEMORY = 4,  // it does not fit in the memory there is
  MB_OVERLOADED = 5,     // the queue is full: ask again later
  MB_CANCELLED = 130     // interrupted by the user
};

typedef struct mb_error mb_error;
// MB_OK for NULL.
MB_EXPORT mb_status mb_error_status(const mb_error* error);
// In one line: what, where, what was expected and what was got. "" for NULL. Lives as long as the
// error.
MB_EXPORT const char* mb_error_message(const mb_error* error);
MB_EXPORT void mb_error_free(mb_error* error);

// "0.1.0": of the library that runs. The header's own version is MARKBASE_VERSION.
MB_EXPORT const char* mb_version(void);

// Frees an array or a text that a function gave.
MB_EXPORT void mb_free(void* memory);

// ---- Texts ------------------------------------------------------------------------------------

// UTF-8, any bytes, by length. What the library gives has a NUL behind it. An empty text: num_bytes
// is 0; data may then be NULL.
typedef struct mb_string {
  const char* data;
  size_t num_bytes;
} mb_string;

// Of a text that ends with a NUL; NULL gives the empty one.
static inline mb_string mb_text(const char* text) {
  mb_string string;
  string.data = text;
  string.num_bytes = text ? strlen(text) : 0;
  return string;
}

// ---- Loading ----------------------------------------------------------------------------------

typedef int32_t mb_backend;
enum { MB_BACKEND_AUTO = 0, MB_BACKEND_CPU = 1, MB_BACKEND_CUDA = 2, MB_BACKEND_REF = 3 };

typedef int32_t mb_unit;
enum { MB_UNIT_BYTES = 0, MB_UNIT_TOKENS = 1, MB_UNIT_RUNS = 2 };

// One step of something that takes a while ("packing", "reading the prompt").
typedef struct mb_progress {
  size_t size;
  mb_string what;
  uint64_t done;
  uint64_t total;
  mb_unit unit;
} mb_progress;

typedef int32_t mb_severity;
enum { MB_SEVERITY_DEBUG = 0, MB_SEVERITY_INFO = 1, MB_SEVERITY_WARNING = 2 };

typedef void (*mb_on_progress)(const mb_progress* progress, void* user);
typedef void (*mb_on_message)(mb_severity severity, mb_string message, void* user);

// Flags are 0 or 1 everywhere.
typedef struct mb_engine_options {
  size_t size;
  mb_backend backend;
  int32_t num_threads;           // 0: the cores this process may use
  const char* cpu_isa;           // "auto", "generic", "avx2", "avxvnni", "avx512", "vnni", "amx"
  int64_t context_tokens;        // 0: the model's limit, or less where memory_bytes demands it
  const char* kv;                // "auto", "f16", "bf16", "f32", "q8"
  int64_t prefill_chunk_tokens;  // 512
  int64_t max_sequences;         // answers that step together; more wait
  int64_t max_queue;             // requests that wait for a place; beyond: MB_OVERLOADED
  int32_t prefix_cache;        // flag: keep what prompts and answers have in common with later ones
  int32_t repack_cache;        // flag: keep the packed weights in a file beside the model
  uint64_t memory_bytes;       // budget; 0: what the machine has free
  const char* activations;     // "auto", "16", "q8"
  mb_on_progress on_progress;  // may be NULL; while loading, and for each chunk of a prompt
  void* progress_user;
  mb_on_message on_message;  // may be NULL; plans and warnings
  void* message_user;
} mb_engine_options;

// The defaults. size: sizeof(mb_engine_options).
MB_EXPORT mb_status mb_engine_options_init(mb_engine_options* options, size_t size,
                                           mb_error** error);

typedef struct mb_engine mb_engine;
// path: a directory or a .gguf file. options: NULL for the defaults. Errors: MB_BAD_INPUT,
// MB_OUT_OF_MEMORY (the plan is in the message), MB_USAGE.
MB_EXPORT mb_status mb_engine_load(const char* path, const mb_engine_options* options,
                                   mb_engine** engine, mb_error** error);
// Ends every request with the reason "cancelled" and waits for its callbacks. Handles of requests
// and completions stay good.
MB_EXPORT void mb_engine_free(mb_engine* engine);

typedef struct mb_model_info {
  size_t size;
  mb_string path;
  mb_string architecture;  // "gemma3_text"
  mb_string backend;       // "cpu (avx2, 2 threads)"
  int64_t vocab_size;
  int64_t context_tokens;           // in this engine
  int32_t has_chat_format;          // flag: messages are understood
  int32_t has_chat_template;        // flag: the files carry a template
  int32_t has_thinking;             // flag: the chat format can ask the model to think
  int32_t has_tools;                // flag: the chat format can offer tools
  uint64_t weight_bytes;            // packed, in memory
  uint64_t weight_bytes_per_token;  // read for one decoded token
  double load_ms;
  // What the model's files recommend for sampling.
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
} mb_model_info;
// Set info->size before the call.
MB_EXPORT mb_status mb_engine_model_info(const mb_engine* engine, mb_model_info* info,
                                         mb_error** error);

// ---- Requests ---------------------------------------------------------------------------------

// A call of a tool that the model asks for.
typedef struct mb_tool_call {
  size_t size;
  mb_string name;
  mb_string arguments;  // JSON text of an object
  mb_string id;         // links a result to its call; models write none
} mb_tool_call;

typedef struct mb_message {
  size_t size;
  mb_string role;  // "system", "user", "assistant", "tool"
  mb_string content;
  mb_string reasoning;             // what an assistant thought before it answered
  const mb_tool_call* tool_calls;  // of an assistant
  size_t num_tool_calls;
  mb_string tool_call_id;  // of a tool's result: the call that it answers
} mb_message;

// What to answer: one of ids, text, messages; more than one are refused.
typedef struct mb_request {
  size_t size;
  const int32_t* ids;  // as they are; no BOS is added
  size_t num_ids;
  mb_string text;         // plain continuation: BOS once, then the text; set where data is not NULL
  int32_t parse_special;  // flag: control-token spellings in `text` become tokens
  int32_t enable_thinking;     // flag: let the model think first, with messages only
  const mb_message* messages;  // through the model's chat format
  size_t num_messages;
  mb_string tools;     // JSON list of tools for the model to call, with messages only
  int64_t max_tokens;  // -1: until a stop or the end of the context
  float temperature;   // 0: greedy
  int32_t top_k;       // 0: off
  float top_p;
  float min_p;
  float repetition_penalty;
  uint32_t answer_idx;  // the number of the (first) answer: keys the random numbers
  uint64_t seed;
  const mb_string* stop;  // strings that end the answer and are removed from it
  size_t num_stop;
  int32_t ignore_eos;    // flag
  int32_t num_answers;   // numbered answer_idx, answer_idx + 1, ...
  int32_t top_logprobs;  // log probabilities of the chosen and of so many likeliest; -1: none
  int32_t priority;      // higher ones are served first
  int64_t timeout_ms;    // from submit; then the answer ends with "timeout". 0: none
} mb_request;

// The defaults: temperature 1 and nothing filtered, or, with an engine, what its model recommends.
// size: sizeof(mb_request). engine may be NULL.
MB_EXPORT mb_status mb_request_init(mb_request* request, size_t size, const mb_engine* engine,
                                    mb_error** error);

typedef struct mb_token_logprob {
  int32_t id;
  float logprob;
} mb_token_logprob;
// Of one generated token.
typedef struct mb_token_logprobs {
  size_t size;
  mb_token_logprob chosen;
  const mb_token_logprob* top;  // likeliest first, ties by id
  size_t num_top;
} mb_token_logprobs;

typedef int32_t mb_piece;
enum { MB_PIECE_CONTENT = 0, MB_PIECE_REASONING = 1, MB_PIECE_TOOL_CALL = 2 };

// A piece of an answer as it comes; text never ends inside a character and never holds part of a
// stop string. Everything in it is good for the duration of the callback.
typedef struct mb_event {
  size_t size;
  mb_string text;
  int32_t id;  // of the first event of a token; -1 for more of the same and for what was held back
  mb_piece piece;
  const mb_tool_call* call;  // of a tool call, when it is whole (its text is empty); NULL otherwise
  const mb_token_logprobs* logprobs;  // with `id`, if asked for; NULL otherwise
  uint32_t answer_idx;
} mb_event;
// Returns 1 to go on, 0 to stop the answer.
typedef int32_t (*mb_on_event)(const mb_event* event, void* user);

typedef struct mb_request_handle mb_request_handle;
typedef struct mb_completions mb_completions;

// From any thread, callbacks included. The request is copied. Requests are stepped together; each
// answer is, bit for bit, what it would be alone. on_event may be NULL; `user` lives until
// mb_wait() has returned or the engine is freed. Errors: MB_USAGE for a parameter out of range or a
// prompt longer than the context, MB_OVERLOADED, MB_OUT_OF_MEMORY.
MB_EXPORT mb_status mb_submit(mb_engine* engine, const mb_request* request, mb_on_event on_event,
                              void* user, mb_request_handle** handle, mb_error** error);
// The request ends at its next step, with the reason "cancelled".
MB_EXPORT mb_status mb_cancel(mb_request_handle* handle, mb_error** error);
// Blocks until every answer is complete; once a handle. num_completions may be NULL. Free the
// completions with mb_completions_free().
MB_EXPORT mb_status mb_wait(mb_request_handle* handle, mb_completions** completions,
                            size_t* num_completions, mb_error** error);
// The request itself goes on: cancel it first if it should not.
MB_EXPORT void mb_request_handle_free(mb_request_handle* handle);
// mb_submit and mb_wait. Not from a callback (MB_USAGE, and nothing is begun).
MB_EXPORT mb_status mb_generate(mb_engine* engine, const mb_request* request, mb_on_event on_event,
                                void* user, mb_completions** completions, size_t* num_completions,
                                mb_error** error);
// The ids that a request starts from, without running it.
MB_EXPORT mb_status mb_prompt_ids(const mb_engine* engine, const mb_request* request, int32_t** ids,
                                  size_t* num_ids, mb_error** error);

// ---- Completions ------------------------------------------------------------------------------
// Answer `idx` of mb_wait, from 0; another number is MB_USAGE. Set `size` of the struct before the
// call; what it points to lives until mb_completions_free().

typedef struct mb_completion {
  size_t size;
  mb_string text;  // the answer: without thoughts and calls, calls that cannot be read included
  mb_string reasoning;
  mb_string finish_reason;  // "stop", "length", "tool_calls", "cancelled", "timeout"
  const int32_t* ids;       // generated, the stop id not included
  size_t num_ids;
  const int32_t* prompt_ids;
  size_t num_prompt_ids;
  size_t num_tool_calls;    // mb_completion_tool_call
  size_t num_broken_calls;  // mb_completion_broken_call
  size_t num_labels;        // mb_completion_label
  size_t num_logprobs;      // mb_completion_logprobs: num_ids if asked for, 0 otherwise
  uint32_t answer_idx;
} mb_completion;
MB_EXPORT mb_status mb_completion_get(const mb_completions* completions, size_t idx,
                                      mb_completion* completion, mb_error** error);

typedef struct mb_timings {
  size_t size;
  double load_ms;
  int64_t prompt_tokens;
  int64_t cached_tokens;  // of the prompt, that were not computed again
  double queue_ms;        // from submit to the first step
  double prompt_ms;       // from there to the first token
  double ttft_ms;         // from submit to the first token
  int64_t generated_tokens;
  double decode_ms;     // from the first token to the last
  double tokens_per_s;  // (generated_tokens - 1) / decode time
} mb_timings;
MB_EXPORT mb_status mb_completion_timings(const mb_completions* completions, size_t idx,
                                          mb_timings* timings, mb_error** error);

MB_EXPORT mb_status mb_completion_tool_call(const mb_completions* completions, size_t idx,
                                            size_t call_idx, mb_tool_call* call, mb_error** error);

// A call as it was written that cannot be read as one.
typedef struct mb_broken_call {
  size_t size;
  mb_string text;
  mb_string why;
  int32_t truncated;  // flag: the length limit cut it
} mb_broken_call;
MB_EXPORT mb_status mb_completion_broken_call(const mb_completions* completions, size_t idx,
                                              size_t call_idx, mb_broken_call* call,
                                              mb_error** error);
// Of a channel of thought that is not called "thought".
MB_EXPORT mb_status mb_completion_label(const mb_completions* completions, size_t idx,
                                        size_t label_idx, mb_string* label, mb_error** error);
// Of the generated token ids[token_idx].
MB_EXPORT mb_status mb_completion_logprobs(const mb_completions* completions, size_t idx,
                                           size_t token_idx, mb_token_logprobs* logprobs,
                                           mb_error** error);
MB_EXPORT void mb_completions_free(mb_completions* completions);

// ---- Logits, embeddings, statistics, the prefix cache -----------------------------------------

// Returns 1 to go on, 0 to stop. The row is good for the duration of the call.
typedef int32_t (*mb_on_logits)(int64_t position, const float* row, size_t vocab_size, void* user);
// Logits of every position (last_only: of the last), after soft-cap, before any sampling.
// MB_CANCELLED where the callback stops it.
MB_EXPORT mb_status mb_logits(mb_engine* engine, const int32_t* ids, size_t num_ids,
                              int32_t last_only, mb_on_logits on_row, void* user, mb_error** error);

typedef int32_t mb_pooling;
enum { MB_POOLING_MEAN = 0, MB_POOLING_LAST = 1 };
// What to embed: ids as they are, or a text with BOS; one of them.
typedef struct mb_embed_request {
  size_t size;
  const int32_t* ids;
  size_t num_ids;
  mb_string text;  // set where data is not NULL
  mb_pooling pooling;
  int32_t normalise;  // flag: to length 1
} mb_embed_request;
// The defaults: mean, normalised. size: sizeof(mb_embed_request).
MB_EXPORT mb_status mb_embed_request_init(mb_embed_request* request, size_t size, mb_error** error);
// The final normed hidden states of a text, pooled: *values takes *num_values = hidden_size floats.
// Blocks; not from a callback.
MB_EXPORT mb_status mb_embed(mb_engine* engine, const mb_embed_request* request, float** values,
                             size_t* num_values, mb_error** error);

// What an engine has done and is doing.
typedef struct mb_engine_stats {
  size_t size;
  int64_t running;  // answers that step
  int64_t waiting;  // answers that wait for a place, preempted ones included
  int64_t steps;
  int64_t prompt_tokens;  // computed
  int64_t cached_tokens;  // of prompts, not computed
  int64_t generated_tokens;
  int64_t preemptions;
  int64_t kv_blocks;       // of all pools
  int64_t kv_blocks_used;  // by answers under way
  int64_t kv_blocks_kept;  // by the prefix cache alone
  double step_ms;          // inside the model
  double scheduling_ms;    // around it: choosing rows, text, callbacks
} mb_engine_stats;
// Set stats->size before the call.
MB_EXPORT mb_status mb_engine_get_stats(const mb_engine* engine, mb_engine_stats* stats,
                                        mb_error** error);

// Keeps the prefix cache in a file and brings it back: versioned, checksummed, refused
// (MB_BAD_INPUT) for another model (weights or configuration) or another kind of cache. Saving
// takes the place of nothing but such a file: whatever else stands at `path` or at "<path>.part" is
// left alone (MB_USAGE). num_tokens (may be NULL): how many were kept or brought back.
MB_EXPORT mb_status mb_save_prefix_cache(mb_engine* engine, const char* path, int64_t* num_tokens,
                                         mb_error** error);
MB_EXPORT mb_status mb_restore_prefix_cache(mb_engine* engine, const char* path,
                                            int64_t* num_tokens, mb_error** error);

// ---- Tokenizer --------------------------------------------------------------------------------

typedef struct mb_tokenizer mb_tokenizer;
// path: a directory with tokenizer.json, or a GGUF with or without weights.
MB_EXPORT mb_status mb_tokenizer_load(const char* path, mb_tokenizer** tokenizer, mb_error** error);
MB_EXPORT void mb_tokenizer_free(mb_tokenizer* tokenizer);
MB_EXPORT mb_status mb_tokenizer_vocab_size(const mb_tokenizer* tokenizer, int64_t* vocab_size,
                                            mb_error** error);
// Flags: add_bos; parse_special: control-token spellings become tokens, otherwise they are plain
// text.
MB_EXPORT mb_status mb_tokenizer_encode(const mb_tokenizer* tokenizer, mb_string text,
                                        int32_t add_bos, int32_t parse_special, int32_t** ids,
                                        size_t* num_ids, mb_error** error);
// The text has a NUL behind it; num_bytes may be NULL. Errors: MB_USAGE for an id outside the
// vocabulary.
MB_EXPORT mb_status mb_tokenizer_decode(const mb_tokenizer* tokenizer, const int32_t* ids,
                                        size_t num_ids, int32_t skip_special, char** text,
                                        size_t* num_bytes, mb_error** error);
// The prompt of a conversation in the model's chat format, from a JSON object: "messages", "tools",
// "enable_thinking", "preserve_thinking", "add_generation_prompt", "continue_final_message". text
// or ids may be NULL (each with its count, which may be NULL beside a text). Errors: MB_USAGE for
// what the format refuses and for options that it does not know, MB_BAD_INPUT for text that is no
// JSON and for a model without a chat format.
MB_EXPORT mb_status mb_tokenizer_chat_prompt(const mb_tokenizer* tokenizer, mb_string json,
                                             char** text, size_t* num_bytes, int32_t** ids,
                                             size_t* num_ids, mb_error** error);

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}  // extern "C"
#endif
