// Random templates over random values: an error or a text, in bounded time; and no stretch of a
// message comes out as the template's own.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/jinja/json_value.h"
#include "tokenizer/jinja/template.h"

namespace {

using namespace markbase::tokenizer::jinja;

// A letter that no template of this fuzzer can write: whoever prints it had it from the message.
constexpr std::string_view kSecret = "\xE2\x98\x83";
constexpr std::string_view kMessage = "<\xE2\x98\x83> a";

}  // namespace

// The template, then after the first 0 byte the JSON that it gets as the variable "m".
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  const std::string_view json = source.size() < size ? input.substr(source.size() + 1) : "null";
  if (source.find(kSecret) != source.npos || source.find('\\') != source.npos) return 0;
  const auto parsed = Template::parse(source);
  if (!parsed.ok()) return 0;
  Arena arena;
  auto value = value_from_json(json, "input", arena);
  const Template::Variables variables = {{"m", value.ok() ? *value : Value::none()},
                                         {"s", arena.string(kMessage, Origin::kMessage)}};
  const auto text = parsed->render(variables);
  if (!text.ok()) return 0;
  size_t begin = 0;
  for (const Run& run : text->runs) {
    MB_CHECK(run.end > begin);
    const std::string_view part = std::string_view(text->bytes).substr(begin, run.end - begin);
    MB_CHECK(run.origin != Origin::kTemplate || part.find(kSecret) == part.npos);
    begin = run.end;
  }
  MB_CHECK(begin == text->bytes.size());
  return 0;
}
