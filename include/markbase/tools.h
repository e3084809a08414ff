// Looking into models and machines. Unstable: these signatures may change between minor versions;
// the JSON keys only grow. Every function returns one JSON document as text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/engine.h"
#include "markbase/export.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase::tools {

// {"version","commit","compiler","backends":[...],"cpu_level"}
MB_EXPORT Result<std::string> version_json();

struct InspectOptions {
  bool tensors = false;  // list every tensor
  EngineOptions engine;  // for the memory plan
};
// {"path","format","architecture","name","layers":[{"kind","..."}],"quantization":[{"format","tensors","bytes"}],
//  "groups":[{"group","tensors","weights","bytes","bits_per_weight","bytes_per_token","formats"}],
//  "tokenizer":{...},"template":"...","modalities":["text"],"unused":[{"name","why","bytes"}],
//  "unused_by_reason":[{"why","tensors","bytes"}],"unknown_keys":[...],"plan":{...},"config":{...}}
MB_EXPORT Result<std::string> inspect_json(const std::string& path, const InspectOptions& options);

// Reads everything and lists every fault:
// {"path","files","tensors","bytes","unknown_keys":[...],"faults":[{"what","where","expected","got"}]}.
// An Error only when nothing could be read at all.
MB_EXPORT Result<std::string> verify_json(const std::string& path,
                                          const std::function<void(const Progress&)>& progress);

// {"cpu":{"model","level","levels":[{"name","supported","why_not"}],"cores",...},"memory":{...},"gpu":...,
//  "backend","threads","bandwidth_gb_per_s","model":{plan}}. model_path may be empty.
MB_EXPORT Result<std::string> doctor_json(const std::string& model_path,
                                          const EngineOptions& options);

// Whether an engine on this machine can do what `options` ask for; no model is opened. Errors as
// Engine::load (kUsage).
MB_EXPORT Result<void> check_engine(const EngineOptions& options);

// Requests that come over time, each of them a prompt and an answer.
struct ArrivalOptions {
  int64_t requests = 0;  // 0: none; the tests of prefill and decode are made
  // On average, at random as those of people who know nothing of each other (a Poisson process); 0:
  // closed, as many clients as sequences, each of which asks again when it has its answer.
  double per_s = 0;
  uint64_t seed = 0;  // of times, lengths and prompts
};
struct BenchOptions {
  std::vector<int64_t> prefill_tokens;  // -p
  int64_t decode_tokens = 128;          // -n, 0: no decode test
  std::vector<int64_t> depths = {0};    // -d
  std::vector<int64_t> batches = {1};   // -b
  int repetitions = 5;                  // -r
  // Instead of the tests above: prompts of one of the lengths prefill_tokens, answers of
  // decode_tokens, in engines of so many sequences as batches says.
  ArrivalOptions arrivals;
  // With arrivals, where a request would be longer than the context: prompts are as long as fits
  // beside the answer, instead of an error.
  bool fit_prompts = false;
};
// {"machine":{...},"model":{...},"tests":[{"kind":"prefill|decode|load","tokens","depth","batch",
//  "tokens_per_s":{"median","min","max"},"bytes_read","share_of_bandwidth"}]}
// With arrivals, tests of "kind" "arrivals": "tokens" of each answer, "batch" sequences at most,
// "tokens_per_s" of all together (one value a repetition), and "requests","rate","seed",
// "prompt_lengths","per_request":{"tokens_per_s":{"median","min","max"}},
// "ttft_ms","inter_token_ms":{"p50","p95","p99","max"},"prompt_tokens","cached_tokens",
// "generated_tokens","preemptions","steps". Times are those that a client sees from its arrival on.
MB_EXPORT Result<std::string> bench_json(const std::string& path, const EngineOptions& engine,
                                         const BenchOptions& options);

struct PerplexityOptions {
  int64_t window_tokens = 0;  // --ctx; 0: as much as the model's context allows
  int64_t stride_tokens = 0;  // --stride; 0: windows do not overlap
  // File to write log-probabilities to, or empty: float32 [tokens, vocab_size] as .npy, and after
  // the rows a record of the text's ids and windows.
  std::string save_logits;
  std::string against;                                      // file to compare with, or empty
  std::function<void(Severity, std::string_view)> message;  // may be empty
};
// BOS, then the text. Errors: kUsage for windows there are not, kBadInput for a file `against` of
// another shape, text or windows; where it carries no record, a message says so.
// {"perplexity","standard_error","tokens","mean_nll",...,"kl":{"mean","p99","max"},"top1_agreement"}
MB_EXPORT Result<std::string> perplexity_json(Engine& engine, std::string_view text,
                                              const PerplexityOptions& options,
                                              const std::function<void(const Progress&)>& progress);

struct SynthOptions {
  std::string size;        // "e4b", "tiny-e4b", ...: synth_size_names()
  std::string format;      // "hf-bf16", "mlx-4bit-g64", "gguf-q4_0", ...
  std::string out;         // a directory to make, or a GGUF file
  int64_t num_layers = 0;  // 0: all
  uint64_t seed = 0;
  int num_threads = 0;           // 0: the cores this process may use; the bytes do not depend on it
  uint64_t max_shard_bytes = 0;  // of safetensors files; 0: what the format's own tools write
  std::function<void(const Progress&)> progress;  // may be empty
  std::function<bool()> cancelled;                // asked often; may be empty
};
// Writes random weights in the real shape of a size, with a made-up vocabulary: for speed and
// tests, its answers mean nothing.
// {"path","size","format","layers","parameters","tensors","bytes","seed"}. The target has its name
// only when it is whole. Errors: kUsage (a size, format or number of layers there is not), kFailed
// (a target that exists, no folder to write to, disk), kCancelled.
MB_EXPORT Result<std::string> synth_json(const SynthOptions& options);
MB_EXPORT std::vector<std::string> synth_size_names();
// "hf-bf16, mlx-bf16, mlx-Nbit[-gG] with ..."
MB_EXPORT std::string synth_format_names();

// Names a model path: a path as it is, an entry of `models_dir`, or org/name in `hf_hub`.
// Errors: kBadInput naming where we looked, the nearest match, and for org/name and the model of
// scripts/fetch_model.sh the line that fetches it.
struct ModelPlaces {
  std::string models_dir;  // empty: none
  std::string hf_hub;      // the folder with Hugging Face's models--org--name; empty: none
};
MB_EXPORT Result<std::string> resolve_model(const std::string& name, const ModelPlaces& places);
// [{"name","path","kind","bytes"}]
MB_EXPORT Result<std::string> list_json(const ModelPlaces& places);

}  // namespace markbase::tools
