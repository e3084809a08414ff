// Stop ids, suppressed ids and sampling defaults of a model.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "model/config_fields.h"
#include "runtime/model_files.h"

namespace markbase::runtime {
namespace {

// What Gemma is published with, where the files say nothing.
constexpr SamplingOptions kGemmaSampling = {.temperature = 1.0F, .top_k = 64, .top_p = 0.95F};

// What is less is 0 as a float, which no request may ask for.
constexpr double kLeastReal = std::numeric_limits<float>::min();

// Ids of a key that holds one integer or a list. -1 entries (none) are left out.
Result<std::vector<int32_t>> id_list(const model::ConfigFields& fields, std::string_view key,
                                     int64_t vocab_size) {
  std::vector<int32_t> ids;
  const base::Json* value = fields.find(key);
  if (value == nullptr) return ids;
  const base::Json list = value->is_array() ? *value : base::Json::array({*value});
  for (const base::Json& entry : list) {
    // A number beyond int64_t would come out of get() as a negative one.
    const bool fits = entry.is_number_unsigned()
                          ? entry.get<uint64_t>() < static_cast<uint64_t>(vocab_size)
                          : entry.is_number_integer() && entry.get<int64_t>() >= -1 &&
                                entry.get<int64_t>() < vocab_size;
    if (!fits) return fields.wrong(key, fmt::format("ids below {}", vocab_size));
    if (entry != -1) ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

void add_ids(std::vector<int32_t>* to, const std::vector<int32_t>& ids) {
  for (const int32_t id : ids) {
    if (id >= 0 && std::find(to->begin(), to->end(), id) == to->end()) to->push_back(id);
  }
}

Result<std::vector<int32_t>> suppressed_ids(const model::ConfigFields& fields, std::string_view key,
                                            int64_t vocab_size) {
  MB_ASSIGN(const std::vector<int32_t> listed, id_list(fields, key, vocab_size));
  std::vector<int32_t> ids;
  add_ids(&ids, listed);
  if (static_cast<int64_t>(ids.size()) < vocab_size) return ids;
  return fields.wrong(key, "a token that may be said");
}

struct SamplingKeys {
  const char* temperature;
  const char* top_k;
  const char* top_p;
  const char* min_p;
  const char* penalty;
};

Result<SamplingOptions> read_sampling(const model::ConfigFields& fields, const SamplingKeys& keys) {
  SamplingOptions sampling = kGemmaSampling;
  const bool any = fields.find(keys.temperature) != nullptr || fields.find(keys.top_k) != nullptr ||
                   fields.find(keys.top_p) != nullptr;
  if (any) sampling = SamplingOptions{};
  MB_ASSIGN(const double temperature,
            fields.real(keys.temperature, -1e-9, 1e6, double{sampling.temperature}));
  MB_ASSIGN(const int64_t top_k, fields.integer(keys.top_k, 0, INT32_MAX, sampling.top_k));
  MB_ASSIGN(const double top_p,
            fields.real(keys.top_p, kLeastReal, 1.0 + 1e-6, double{sampling.top_p}));
  MB_ASSIGN(const double min_p, fields.real(keys.min_p, -1e-9, 1.0 + 1e-6, 0.0));
  MB_ASSIGN(const double penalty, fields.real(keys.penalty, kLeastReal, 1e6, 1.0));
  sampling.temperature = static_cast<float>(std::max(0.0, temperature));
  sampling.top_k = static_cast<int>(top_k);
  sampling.top_p = static_cast<float>(std::min(1.0, top_p));
  sampling.min_p = static_cast<float>(std::clamp(min_p, 0.0, 1.0));
  sampling.repetition_penalty = static_cast<float>(penalty);
  return sampling;
}

// The id of a control token of this spelling.
std::vector<int32_t> control_ids(const tokenizer::Tokenizer& tokenizer,
                                 std::initializer_list<const char*> spellings) {
  std::vector<int32_t> ids;
  for (const char* spelling : spellings) {
    const auto id = tokenizer.find(spelling);
    if (id && tokenizer.kind(*id) == tokenizer::TokenKind::kControl) ids.push_back(*id);
  }
  return ids;
}

// Without a list of the file's own, what the vocabulary calls an end, and the end of a turn.
void add_vocabulary_stops(const tokenizer::Tokenizer& tokenizer, std::vector<int32_t>* stop_ids) {
  add_ids(stop_ids, {tokenizer.eos_id()});
  add_ids(stop_ids, tokenizer.extra_stop_ids());
  for (const char* marker : {"<end_of_turn>", "<turn|>"}) {
    if (const auto id = tokenizer.find(marker)) add_ids(stop_ids, {*id});
  }
}

Result<void> read_generation_file(const std::string& file, int64_t vocab_size,
                                  GenerationConfig* out) {
  MB_ASSIGN(const std::string text, read_file(file));
  MB_ASSIGN(const base::Json json, base::parse_json(text, file));
  if (!json.is_object()) return base::bad_input("{}: expected a JSON object", file);
  const model::ConfigFields fields(json, file);
  MB_ASSIGN(out->sampling, read_sampling(fields, {"temperature", "top_k", "top_p", "min_p",
                                                  "repetition_penalty"}));
  MB_ASSIGN(const bool sampled, fields.boolean("do_sample", true));
  if (!sampled) out->sampling.temperature = 0.0F;
  MB_ASSIGN(out->stop_ids, id_list(fields, "eos_token_id", vocab_size));
  MB_ASSIGN(out->suppress_ids, suppressed_ids(fields, "suppress_tokens", vocab_size));
  return {};
}

// config.json lists fewer ends than generation_config.json in the published checkpoints, or more:
// both count.
Result<void> add_config_stops(const base::Json& config, const std::string& where,
                              int64_t vocab_size, std::vector<int32_t>* stop_ids) {
  if (!config.is_object()) return {};
  const model::ConfigFields top(config, where);
  MB_ASSIGN(const std::vector<int32_t> ids, id_list(top, "eos_token_id", vocab_size));
  add_ids(stop_ids, ids);
  const base::Json* text = top.find("text_config");
  if (text == nullptr || !text->is_object()) return {};
  MB_ASSIGN(const std::vector<int32_t> inner,
            id_list(model::ConfigFields(*text, where), "eos_token_id", vocab_size));
  add_ids(stop_ids, inner);
  return {};
}

Result<GenerationConfig> from_directory(const ModelPath& path, const base::Json& config,
                                        const tokenizer::Tokenizer& tokenizer, int64_t vocab_size) {
  GenerationConfig out;
  out.sampling = kGemmaSampling;
  const std::string file = (std::filesystem::path(path.path) / "generation_config.json").string();
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) {
    MB_TRY(read_generation_file(file, vocab_size, &out));
  }
  MB_TRY(add_config_stops(config, path.path + "/config.json", vocab_size, &out.stop_ids));
  if (out.stop_ids.empty()) add_vocabulary_stops(tokenizer, &out.stop_ids);
  // A model that may call tools makes up their results if it is not stopped there; some lists
  // leave it out.
  add_ids(&out.stop_ids, control_ids(tokenizer, {"<|tool_response>"}));
  return out;
}

Result<GenerationConfig> from_gguf(const ModelPath& path, const base::Json& config,
                                   const tokenizer::Tokenizer& tokenizer, int64_t vocab_size) {
  GenerationConfig out;
  const model::ConfigFields fields(config, path.path);
  MB_ASSIGN(out.sampling, read_sampling(fields, {"general.sampling.temp", "general.sampling.top_k",
                                                 "general.sampling.top_p", "general.sampling.min_p",
                                                 "general.sampling.penalty_repeat"}));
  MB_ASSIGN(out.suppress_ids, suppressed_ids(fields, "tokenizer.ggml.suppress_tokens", vocab_size));
  if (fields.find("tokenizer.ggml.suppress_tokens") == nullptr) {
    // Files made before the key existed: what the checkpoints suppress. A model of this vocabulary
    // does rank the end of a picture first now and then.
    out.suppress_ids = control_ids(tokenizer, {"<image|>", "<audio|>"});
  }
  add_vocabulary_stops(tokenizer, &out.stop_ids);
  const base::Json* end_of_message = fields.find("tokenizer.ggml.eom_token_id");
  if (end_of_message != nullptr && end_of_message->is_number_unsigned() &&
      *end_of_message < vocab_size) {
    add_ids(&out.stop_ids, {end_of_message->get<int32_t>()});
  }
  const auto outside = [&](int32_t id) { return id >= vocab_size; };
  std::erase_if(out.stop_ids, outside);
  std::erase_if(out.suppress_ids, outside);
  return out;
}

}  // namespace

Result<GenerationConfig> load_generation_config(const ModelPath& path, const base::Json& config,
                                                const tokenizer::Tokenizer& tokenizer,
                                                int64_t vocab_size) {
  return path.kind == PathKind::kDirectory ? from_directory(path, config, tokenizer, vocab_size)
                                           : from_gguf(path, config, tokenizer, vocab_size);
}

}  // namespace markbase::runtime
