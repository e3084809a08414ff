// Which text is nearest: embeds a question and some sentences and prints the sentences by the
// cosine of their vectors' angle to it.
//   embed MODEL [QUESTION SENTENCE...]
#include <markbase/engine.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: embed MODEL [QUESTION SENTENCE...]\n"), 2;
  std::vector<std::string> texts(argv + 2, argv + argc);
  if (texts.size() < 2) {
    texts = {"Where do whales live?", "Whales live in the sea.", "Bread is made of flour.",
             "The sea is home to whales."};
  }
  auto engine = markbase::Engine::load(argv[1], {});
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;

  std::vector<std::vector<float>> vectors;
  for (const std::string& text : texts) {
    markbase::EmbedRequest request;  // by default the mean over the tokens, of length 1
    request.text = text;
    auto vector = engine->embed(request);
    if (!vector.ok()) return std::fprintf(stderr, "%s\n", vector.error().message.c_str()), 1;
    vectors.push_back(*std::move(vector));
  }
  std::vector<std::pair<double, std::string>> rows;
  for (size_t i = 1; i < texts.size(); ++i) {
    const double cosine =
        std::inner_product(vectors[0].begin(), vectors[0].end(), vectors[i].begin(), 0.0);
    rows.emplace_back(cosine, texts[i]);
  }
  std::sort(rows.rbegin(), rows.rend());
  std::printf("%s\n", texts[0].c_str());
  for (const auto& [cosine, text] : rows) std::printf("%6.3f  %s\n", cosine, text.c_str());
}
