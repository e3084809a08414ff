// A user of the library: a model that is not there must be refused with its name, not crash.
#include <cstdio>
#include <string>

#include "markbase/engine.h"
#include "markbase/tokenizer.h"
#include "markbase/tools.h"
#include "markbase/version.h"

int main() {
  const auto engine = markbase::Engine::load("no-such-model.gguf", {});
  if (engine.ok() || engine.error().code != markbase::ErrorCode::kBadInput) return 1;
  if (engine.error().message.find("no-such-model.gguf") == std::string::npos) return 2;
  if (markbase::Tokenizer::load("no-such-model.gguf").ok()) return 3;
  const auto version = markbase::tools::version_json();
  if (!version.ok() || version->find(MARKBASE_VERSION) == std::string::npos) return 4;
  std::puts(version->c_str());
  return 0;
}
