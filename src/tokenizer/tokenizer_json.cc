// From tokenizer.json and tokenizer_config.json. Whatever would change the ids and is not
// understood here is refused by name.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/merge_list.h"

namespace markbase::tokenizer {
namespace {

using base::bad_input;
using base::Json;

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
};

std::string shown(const Json& json) {
  std::string text = base::dump_json(json);
  constexpr size_t kMaxShown = 200;
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : kNull;
}

std::string type_of(const Json& step) {
  const Json& type = member(step, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

// A step that may be missing, alone, or a "Sequence" with its parts under `list_key`.
std::vector<Json> steps_of(const Json& json, const char* list_key) {
  if (json.is_null()) return {};
  const Json& list = member(json, list_key);
  if (type_of(json) == "Sequence" && list.is_array()) return {list.begin(), list.end()};
  return {json};
}

bool is_replace(const Json& step, std::string_view from, std::string_view to) {
  return type_of(step) == "Replace" && member(member(step, "pattern"), "String") == from &&
         member(step, "content") == to;
}

Result<void> check_normalizer(const Json& json, std::string_view source) {
  const std::vector<Json> steps = steps_of(json, "normalizers");
  if (steps.size() == 1 && is_replace(steps[0], " ", kSpacePiece)) return {};
  return bad_input("{}: normalizer is {}, expected one Replace of \" \" by U+2581", source,
                   shown(json));
}

// After the normaliser no space is left, so a split at spaces does nothing.
Result<void> check_pre_tokenizer(const Json& json, std::string_view source) {
  for (const Json& step : steps_of(json, "pretokenizers")) {
    const bool is_idle = type_of(step) == "Split" &&
                         member(member(step, "pattern"), "String") == " " &&
                         member(step, "invert") == false;
    if (!is_idle) {
      return bad_input("{}: pre_tokenizer is {}, expected null or a Split at \" \"", source,
                       shown(step));
    }
  }
  return {};
}

// The template may put <bos> in front: whether to is the caller's choice here. Anything else is
// refused.
Result<void> check_post_processor(const Json& json, std::string_view source) {
  for (const Json& step : steps_of(json, "processors")) {
    const Json& single = member(step, "single");
    bool understood = type_of(step) == "TemplateProcessing" && single.is_array();
    if (understood) {
      int num_special = 0;
      for (size_t i = 0; i < single.size(); ++i) {
        const Json& special = member(single[i], "SpecialToken");
        if (special.is_null()) continue;
        ++num_special;
        understood = understood && i == 0 && member(special, "id") == "<bos>";
      }
      understood = understood && single.size() == static_cast<size_t>(num_special) + 1;
    }
    if (!understood) {
      return bad_input(
          "{}: post_processor is {}, expected null or a template of <bos> and the text", source,
          shown(step));
    }
  }
  return {};
}

Result<void> check_decoder(const Json& json, std::string_view source) {
  for (const Json& step : steps_of(json, "decoders")) {
    const std::string type = type_of(step);
    if (type == "ByteFallback" || type == "Fuse" || is_replace(step, kSpacePiece, " ")) continue;
    return bad_input(
        "{}: decoder has the step {}, expected Replace of U+2581 by \" \", ByteFallback and Fuse",
        source, shown(step));
  }
  return {};
}

// Keys of the model and the values that mean what this reader does.
Result<void> check_model(const Json& model, std::string_view source) {
  if (!model.is_object())
    return bad_input("{}: model is {}, expected an object", source, shown(model));
  for (const auto& [key, value] : model.items()) {
    bool good = false;
    if (key == "type") {
      good = value == "BPE";
    } else if (key == "dropout") {
      good = value.is_null() || value == 0.0;
    } else if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      good = value.is_null() || value == "";
    } else if (key == "ignore_merges") {
      good = value == false;
    } else if (key == "byte_fallback") {
      good = value == true;
    } else if (key == "fuse_unk") {
      good = value.is_boolean();
    } else if (key == "unk_token") {
      good = value.is_null() || value.is_string();
    } else {
      good = key == "vocab" || key == "merges" || key == "cache_capacity";
    }
    if (!good)
      return bad_input("{}: model.{} is {}, which is not supported", source, key, shown(value));
  }
  if (!member(model, "byte_fallback").is_boolean()) {
    return bad_input("{}: model.byte_fallback is missing, expected true", source);
  }
  return {};
}

Result<void> check_pipeline(const TokenizerJson& json, std::string_view source) {
  for (const auto& [key, value] : json.rest.items()) {
    // Cutting and padding are the caller's business, as in every program that reads these files.
    const bool known = key == "version" || key == "truncation" || key == "padding" ||
                       key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" ||
                       key == "post_processor" || key == "decoder" || key == "model";
    if (!known) return bad_input("{}: key '{}' is not known", source, key);
  }
  MB_TRY(check_model(member(json.rest, "model"), source));
  if (!json.has_vocab) return bad_input("{}: model.vocab is missing", source);
  if (!json.has_merges) return bad_input("{}: model.merges is missing", source);
  MB_TRY(check_normalizer(member(json.rest, "normalizer"), source));
  MB_TRY(check_pre_tokenizer(member(json.rest, "pre_tokenizer"), source));
  MB_TRY(check_post_processor(member(json.rest, "post_processor"), source));
  return check_decoder(member(json.rest, "decoder"), source);
}

Result<AddedToken> read_added_token(const Json& json, size_t index, std::string_view source) {
  const auto wrong = [&](std::string_view what) {
    return bad_input("{}: added_tokens: entry {} ({}): {}", source, index, shown(json), what);
  };
  AddedToken token;
  const Json& content = member(json, "content");
  const Json& id = member(json, "id");
  if (!content.is_string() || content == "") return wrong("expected a 'content' that is not empty");
  if (!id.is_number_integer() || id < 0 || id > kMaxTokenId)
    return wrong("expected an 'id' of 0 to 4194304");
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
    const Json& value = member(json, flag);
    if (!value.is_null() && value != false) {
      return wrong(fmt::format("'{}' is {}, expected false", flag, shown(value)));
    }
  }
  const Json& special = member(json, "special");
  if (!special.is_null() && !special.is_boolean()) return wrong("expected 'special' true or false");
  token.content = content.get<std::string>();
  token.id = id.get<int32_t>();
  token.special = special == true;
  return token;
}

Result<std::vector<AddedToken>> read_added_tokens(const Json& json, std::string_view source) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array())
    return bad_input("{}: added_tokens is {}, expected a list", source, shown(json));
  tokens.reserve(json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    MB_ASSIGN(AddedToken token, read_added_token(json[i], i, source));
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].id == tokens[i - 1].id) {
      return bad_input("{}: added_tokens: id {} is there twice, '{}' and '{}'", source,
                       tokens[i].id, tokens[i - 1].content, tokens[i].content);
    }
  }
  return tokens;
}

// Both lists in id order; an id in both must be the same piece.
Result<Vocabulary> merge_pieces(TokenizerJson& json, const std::vector<AddedToken>& added,
                                std::string_view source) {
  auto& entries = json.vocab;
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  Vocabulary vocabulary;
  size_t num_bytes = 0;
  for (const auto& entry : entries) num_bytes += entry.length;
  for (const auto& token : added) num_bytes += token.content.size();
  vocabulary.reserve(entries.size() + added.size(), num_bytes);
  size_t next_entry = 0;
  size_t next_added = 0;
  while (next_entry < entries.size() || next_added < added.size()) {
    const auto* entry = next_entry < entries.size() ? &entries[next_entry] : nullptr;
    const auto* token = next_added < added.size() ? &added[next_added] : nullptr;
    const int32_t id = std::min(entry ? entry->id : INT32_MAX, token ? token->id : INT32_MAX);
    if (entry && entry->id != id) entry = nullptr;
    if (token && token->id != id) token = nullptr;
    next_entry += entry != nullptr;
    next_added += token != nullptr;
    const std::string_view piece = entry ? json.text(entry->offset, entry->length) : token->content;
    if (id < vocabulary.size()) {
      return bad_input("{}: model.vocab: id {} is there twice, '{}' and '{}'", source, id,
                       vocabulary.piece(id), piece);
    }
    while (vocabulary.size() < id) vocabulary.add({}, TokenKind::kUnused, false);
    if (token && token->content != piece) {
      return bad_input("{}: added_tokens: id {} is '{}', but model.vocab has '{}' there", source,
                       id, token->content, piece);
    }
    TokenKind kind = byte_of_piece(piece) ? TokenKind::kByte : TokenKind::kNormal;
    if (token) kind = token->special ? TokenKind::kControl : TokenKind::kUserDefined;
    vocabulary.add(piece, kind, entry != nullptr);
  }
  MB_TRY(vocabulary.build_index(source));
  return vocabulary;
}

Result<MergeTable> read_merges(const TokenizerJson& json, const Vocabulary& vocabulary,
                               std::string_view source) {
  std::vector<Merge> merges;
  merges.reserve(json.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < json.merges.size(); ++rank) {
    const auto& entry = json.merges[rank];
    const std::string_view left = json.text(entry.offset, entry.left_length);
    const std::string_view right = json.text(entry.offset + entry.left_length, entry.right_length);
    MB_ASSIGN(const Merge merge, resolve_merge(vocabulary, left, right, rank, source, joined));
    merges.push_back(merge);
  }
  return MergeTable::build(vocabulary, std::move(merges), source);
}

// A token named in tokenizer_config.json, as text or as an object with 'content'; without one,
// `usual`.
Result<int32_t> named_token(const Json& config, const char* key, std::string_view usual,
                            const Vocabulary& vocabulary, std::string_view source) {
  const Json& value = member(config, key);
  const Json& content = value.is_object() ? member(value, "content") : value;
  if (content.is_null()) return vocabulary.find(usual);
  if (!content.is_string()) {
    return bad_input("{}: {} of tokenizer_config.json is {}, expected text", source, key,
                     shown(value));
  }
  const std::string text = content.get<std::string>();
  const int32_t id = vocabulary.find(text);
  if (id < 0)
    return bad_input("{}: {} of tokenizer_config.json is '{}', which is no token", source, key,
                     text);
  return id;
}

// A text, or a list of {"name", "template"} of which "default" counts.
Result<std::string> template_of(const Json& config, std::string_view source) {
  const Json& value = member(config, "chat_template");
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const Json& entry : value) {
      const Json& text = member(entry, "template");
      if (member(entry, "name") == "default" && text.is_string()) return text.get<std::string>();
    }
  }
  return bad_input(
      "{}: chat_template of tokenizer_config.json is {}, expected a text or a list with a template "
      "named default",
      source, shown(value));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> from_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config,
                                                       std::string_view chat_template,
                                                       std::string_view source) {
  MB_ASSIGN(TokenizerJson json, read_tokenizer_json(tokenizer_json, source));
  MB_TRY(check_pipeline(json, source));
  Json config;
  if (!tokenizer_config.empty()) {
    MB_ASSIGN(config, base::parse_json(tokenizer_config,
                                       fmt::format("tokenizer_config.json beside {}", source)));
    if (!config.is_object()) {
      return bad_input("{}: tokenizer_config.json is {}, expected a JSON object", source,
                       shown(config));
    }
  }
  MB_ASSIGN(const auto added, read_added_tokens(member(json.rest, "added_tokens"), source));
  TokenizerParts parts;
  parts.source = source;
  MB_ASSIGN(parts.vocabulary, merge_pieces(json, added, source));
  for (const AddedToken& token : added) parts.added_ids.push_back(token.id);
  const Json& model = member(json.rest, "model");
  parts.fuse_unk = member(model, "fuse_unk") == true;
  if (const Json& unk = member(model, "unk_token"); unk.is_string()) {
    parts.unk_id = parts.vocabulary.find(unk.get<std::string>());
    if (parts.unk_id < 0)
      return bad_input("{}: model.unk_token is {}, which is no token", source, shown(unk));
  }
  MB_ASSIGN(parts.merges, read_merges(json, parts.vocabulary, source));
  MB_ASSIGN(parts.bos_id, named_token(config, "bos_token", "<bos>", parts.vocabulary, source));
  MB_ASSIGN(parts.eos_id, named_token(config, "eos_token", "<eos>", parts.vocabulary, source));
  MB_ASSIGN(parts.pad_id, named_token(config, "pad_token", "<pad>", parts.vocabulary, source));
  if (chat_template.empty()) {
    MB_ASSIGN(parts.chat_template, template_of(config, source));
  } else {
    parts.chat_template = chat_template;
  }
  return BpeTokenizer::create(std::move(parts));
}

}  // namespace markbase::tokenizer
