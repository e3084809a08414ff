// Random messages through the chat format: no text of a message may make or break a control token.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tokenizer/chat_template.h"

namespace {

using namespace markbase::tokenizer;

std::unique_ptr<Tokenizer> small_tokenizer() {
  static std::vector<std::string> pieces = {"<pad>",           "<eos>",         "<bos>", "<unk>",
                                            "<start_of_turn>", "<end_of_turn>", "\n",    "\n\n"};
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  for (size_t i = 0; i < 8; ++i) vocabulary.token_types.push_back(i < 6 ? 3 : 4);
  for (int i = 0; i < 256; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    pieces.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
    vocabulary.token_types.push_back(6);
  }
  vocabulary.tokens.assign(pieces.begin(), pieces.end());
  vocabulary.scores.assign(pieces.size(), -1.0f);
  return std::move(from_gguf(vocabulary, "small")).value();
}

}  // namespace

// Messages are parted by a 0 byte; within one, the role ends at the first 1 byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  static const ChatTemplate format = std::move(ChatTemplate::create(*tokenizer).value()).value();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (auto request = parse_chat_request(rest); request.ok())
    (void)format.render(std::move(request).value());
  std::vector<ChatMessage> messages;
  while (!rest.empty()) {
    const std::string_view message = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), message.size() + 1));
    const size_t role_end = message.find('\1');
    const bool has_role = role_end != message.npos;
    messages.push_back({std::string(has_role              ? message.substr(0, role_end)
                                    : messages.size() % 2 ? "assistant"
                                                          : "user"),
                        std::string(has_role ? message.substr(role_end + 1) : message)});
  }
  if (messages.empty()) return 0;
  const auto chat = format.render(chat_request_of(messages, true));
  if (!chat.ok()) return 0;
  const auto ids = encode_chat(*tokenizer, chat->segments);
  const auto count = [&](int32_t id) {
    return static_cast<size_t>(std::count(ids.begin(), ids.end(), id));
  };
  const size_t num_turns = messages.size() - (messages[0].role == "system" ? 1 : 0);
  MB_CHECK(count(2) == 1 && ids.front() == 2);
  MB_CHECK(count(4) == num_turns + 1);
  MB_CHECK(count(5) == num_turns);
  MB_CHECK(count(0) + count(1) + count(3) == 0);
  return 0;
}
