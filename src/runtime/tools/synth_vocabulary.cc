#include "runtime/tools/synth_vocabulary.h"

#include <array>
#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "base/error.h"
#include "base/json.h"

namespace markbase::tools {
namespace {

enum PieceType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

constexpr int64_t kUsualSize = 262144;
constexpr int64_t kUsualFirstByte = 238;
constexpr std::string_view kSpace = "\u2581";

struct Control {
  int64_t id;  // in a vocabulary of the usual size
  std::string_view piece;
};
constexpr std::array kBoth = {Control{0, "<pad>"}, Control{1, "<eos>"}, Control{2, "<bos>"},
                              Control{3, "<unk>"}, Control{4, "<mask>"}};
constexpr std::array kGemma4 = {
    Control{105, "<|turn>"},         Control{106, "<turn|>"},         Control{46, "<|tool>"},
    Control{47, "<tool|>"},          Control{48, "<|tool_call>"},     Control{49, "<tool_call|>"},
    Control{50, "<|tool_response>"}, Control{51, "<tool_response|>"}, Control{52, "<|\"|>"},
    Control{98, "<|think|>"},        Control{100, "<|channel>"},      Control{101, "<channel|>"},
    Control{255999, "<|image>"},     Control{256000, "<|audio>"},     Control{258880, "<|image|>"},
    Control{258881, "<|audio|>"},    Control{258882, "<image|>"},     Control{258883, "<audio|>"},
    Control{258884, "<|video|>"},
};
constexpr std::array kGemma3 = {Control{105, "<start_of_turn>"}, Control{106, "<end_of_turn>"},
                                Control{255999, "<start_of_image>"},
                                Control{256000, "<end_of_image>"}};

// Pieces in the order in which a vocabulary takes them: characters, then letters after a space,
// then pairs and triples of letters, then words that no merge leads to.
class PieceSequence {
 public:
  std::string next() {
    if (characters_ < kCharacters.size()) return std::string(kCharacters[characters_++]);
    if (printable_ < 127) return {static_cast<char>(printable_++)};
    for (; length_ < kForms; ++length_, number_ = 0) {
      const auto [spaced, letters] = form(length_);
      if (number_ < count(letters)) return (spaced ? std::string(kSpace) : "") + word(letters);
    }
    return fmt::format("{}word{}", kSpace, filler_++);
  }

 private:
  static constexpr std::array<std::string_view, 8> kCharacters = {
      kSpace, "\n", "\t", "\u00e9", "\u00e8", "\u00fc", "\u00f6", "\u00e4"};
  static constexpr size_t kForms = 4;
  struct Form {
    bool spaced;
    int letters;
  };
  static Form form(size_t idx) {
    constexpr std::array<Form, kForms> kTable = {{{true, 1}, {true, 2}, {false, 2}, {false, 3}}};
    return kTable[idx];
  }
  static int64_t count(int letters) {
    int64_t n = 1;
    for (int i = 0; i < letters; ++i) n *= 26;
    return n;
  }
  std::string word(int letters) {
    std::string text(static_cast<size_t>(letters), 'a');
    int64_t rest = number_++;
    for (size_t i = text.size(); i-- > 0; rest /= 26) {
      text[i] = static_cast<char>('a' + rest % 26);
    }
    return text;
  }

  size_t characters_ = 0;
  int printable_ = '!';
  size_t length_ = 0;
  int64_t number_ = 0;
  int64_t filler_ = 0;
};

void place(SynthVocabulary* v, int64_t id, std::string piece, PieceType type) {
  const auto at = static_cast<size_t>(id);
  v->pieces[at] = std::move(piece);
  v->types[at] = type;
}

void place_controls(SynthVocabulary* v, std::span<const Control> controls, bool usual,
                    int64_t* next_id) {
  for (const Control& control : controls) {
    const int64_t id = usual ? control.id : (*next_id)++;
    place(v, id, std::string(control.piece), control.piece == "<unk>" ? kUnknown : kControl);
    if (control.id == 106) v->end_of_turn_id = static_cast<int32_t>(id);
  }
}

// Every way to cut a piece into two that are pieces: what a score-driven tokenizer would join.
void add_merges(const std::string& piece, const std::unordered_set<std::string>& known,
                std::vector<std::string>* merges) {
  for (size_t cut = piece.size() - 1; cut > 0; --cut) {
    if (!known.contains(piece.substr(0, cut)) || !known.contains(piece.substr(cut))) continue;
    merges->push_back(fmt::format("{} {}", piece.substr(0, cut), piece.substr(cut)));
  }
}

}  // namespace

SynthVocabulary synth_vocabulary(int64_t size, bool gemma4) {
  MB_CHECK(size >= 400);
  const bool usual = size >= kUsualSize;
  SynthVocabulary v;
  v.pieces.resize(static_cast<size_t>(size));
  v.types.assign(static_cast<size_t>(size), kNormal);
  v.scores.assign(static_cast<size_t>(size), 0.0F);
  int64_t next_id = 0;
  place_controls(&v, kBoth, usual, &next_id);
  if (gemma4) {
    place_controls(&v, kGemma4, usual, &next_id);
  } else {
    place_controls(&v, kGemma3, usual, &next_id);
  }
  const int64_t first_byte = usual ? kUsualFirstByte : next_id;
  for (int64_t byte = 0; byte < 256; ++byte) {
    place(&v, first_byte + byte, fmt::format("<0x{:02X}>", byte), kByte);
  }
  PieceSequence sequence;
  std::unordered_set<std::string> known;
  int64_t rank = 0;
  for (size_t id = 0; id < v.pieces.size(); ++id) {
    if (!v.pieces[id].empty()) continue;
    v.pieces[id] = sequence.next();
    v.scores[id] = -static_cast<float>(++rank);
    add_merges(v.pieces[id], known, &v.merges);
    known.insert(v.pieces[id]);
  }
  return v;
}

std::string synth_tokenizer_json(const SynthVocabulary& vocabulary) {
  base::Json added = base::Json::array();
  // As strings: an object of a quarter of a million members is slow to build.
  std::string vocab;
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& piece = vocabulary.pieces[id];
    vocab += fmt::format("{}{}:{}", id == 0 ? "" : ",\n", base::dump_json(base::Json(piece)), id);
    if (vocabulary.types[id] != kControl && vocabulary.types[id] != kUnknown) continue;
    added.push_back({{"id", id},
                     {"content", piece},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  std::string merges;
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    const base::Json pair = {merge.substr(0, space), merge.substr(space + 1)};
    merges += fmt::format("{}{}", merges.empty() ? "" : ",\n", base::dump_json(pair));
  }
  const base::Json replace = {
      {"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}};
  const base::Json normalizer = {
      {"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  const base::Json split = {{"type", "Split"},
                            {"pattern", {{"String", " "}}},
                            {"behavior", "MergedWithPrevious"},
                            {"invert", false}};
  const base::Json decoders = {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  const base::Json decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":{},"normalizer":{},"pre_tokenizer":{},)"
      R"("post_processor":null,"decoder":{},"model":{{"type":"BPE","dropout":null,"unk_token":"<unk>",)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,)"
      R"("ignore_merges":false,"vocab":{{{}}},"merges":[{}]}}}})",
      base::dump_json(added), base::dump_json(normalizer), base::dump_json(split),
      base::dump_json(decoder), vocab, merges);
}

std::string synth_tokenizer_config(bool gemma4) {
  const base::Json config = {{"tokenizer_class", "GemmaTokenizer"},
                             {"add_bos_token", true},
                             {"bos_token", "<bos>"},
                             {"eos_token", "<eos>"},
                             {"pad_token", "<pad>"},
                             {"unk_token", "<unk>"},
                             {"mask_token", "<mask>"},
                             {"eot_token", gemma4 ? "<turn|>" : "<end_of_turn>"},
                             {"clean_up_tokenization_spaces", false}};
  return base::dump_json(config, 2) + "\n";
}

}  // namespace markbase::tools
