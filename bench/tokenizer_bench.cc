// Times a tokenizer through the public library; loading is not counted.
//   tokenizer_bench encode MODEL FILE [--ids OUT]
//     FILE holds documents, separated by NUL bytes. Each is encoded by one call, control tokens not
//     parsed, after one untimed pass over the first tenth. --ids writes all ids as int32, little
//     endian, with -1 after each document.
//   tokenizer_bench chat MODEL FILE [--repeat N]
//     FILE holds a request as `markbase template` takes it: JSON to prompt to ids, N times.
// Prints one JSON object. bench/vs_tokenizers.py runs it beside the `tokenizers` library.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "markbase/tokenizer.h"

namespace markbase {
namespace {

struct Options {
  std::string model;
  std::string file;
  std::string ids_file;
  int repeat = 25;
};

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "tokenizer_bench: %s\n", what.c_str());
  std::exit(1);
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of this thread: what other programs take away does not count.
double cpu_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    documents.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return documents;
}

void write_ids(const std::string& path, const std::vector<std::vector<int32_t>>& all) {
  std::ofstream file(path, std::ios::binary);
  const int32_t end = -1;
  for (const std::vector<int32_t>& ids : all) {
    file.write(reinterpret_cast<const char*>(ids.data()),
               static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
    file.write(reinterpret_cast<const char*>(&end), sizeof(end));
  }
  if (!file) stop(path + ": cannot be written");
}

void encode(const Tokenizer& tokenizer, const Options& options) {
  const std::string text = read(options.file);
  const std::vector<std::string_view> documents = documents_of(text);
  std::vector<std::vector<int32_t>> ids(documents.size());
  if (documents.size() > 1) {
    for (size_t i = 0; i < documents.size() / 10; ++i)
      ids[i] = tokenizer.encode(documents[i], false, false);
  } else {
    for (std::string_view document : documents)
      ids[0] = tokenizer.encode(document.substr(0, document.size() / 10), false, false);
  }
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  for (size_t i = 0; i < documents.size(); ++i)
    ids[i] = tokenizer.encode(documents[i], false, false);
  const double cpu_used = cpu_seconds() - cpu;
  const double wall_used = wall_seconds() - wall;
  size_t count = 0;
  for (const std::vector<int32_t>& some : ids) count += some.size();
  if (!options.ids_file.empty()) write_ids(options.ids_file, ids);
  std::printf("{\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"bytes\":%zu,\"ids\":%zu}\n", wall_used,
              cpu_used, text.size(), count);
}

void chat(const Tokenizer& tokenizer, const Options& options) {
  const std::string request = read(options.file);
  std::vector<double> wall;
  std::vector<double> cpu;
  size_t bytes = 0;
  size_t ids = 0;
  for (int i = 0; i <= options.repeat; ++i) {
    const double wall_begin = wall_seconds();
    const double cpu_begin = cpu_seconds();
    const auto prompt = tokenizer.chat_prompt(request);
    if (!prompt.ok()) stop(prompt.error().message);
    if (i == 0) continue;  // the first one warms up
    cpu.push_back((cpu_seconds() - cpu_begin) * 1e3);
    wall.push_back((wall_seconds() - wall_begin) * 1e3);
    bytes = prompt->text.size();
    ids = prompt->ids.size();
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  std::printf(
      "{\"ms\":{\"median\":%.3f,\"min\":%.3f,\"max\":%.3f},\"cpu_ms\":{\"median\":%.3f,\"min\":%."
      "3f,"
      "\"max\":%.3f},\"repeat\":%d,\"bytes\":%zu,\"ids\":%zu}\n",
      wall[wall.size() / 2], wall.front(), wall.back(), cpu[cpu.size() / 2], cpu.front(),
      cpu.back(), options.repeat, bytes, ids);
}

}  // namespace
}  // namespace markbase

int main(int argc, char** argv) {
  using namespace markbase;
  Options options;
  CLI::App app{"Times a tokenizer through the public library"};
  app.require_subcommand(1);
  CLI::App* encoding = app.add_subcommand("encode", "encode documents");
  CLI::App* chatting = app.add_subcommand("chat", "turn a request into a prompt");
  for (CLI::App* command : {encoding, chatting}) {
    command->add_option("model", options.model)->required();
    command->add_option("file", options.file)->required();
  }
  encoding->add_option("--ids", options.ids_file, "write all ids here");
  chatting->add_option("--repeat", options.repeat)->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  const Result<Tokenizer> tokenizer = Tokenizer::load(options.model);
  if (!tokenizer.ok()) stop(tokenizer.error().message);
  *chatting ? chat(*tokenizer, options) : encode(*tokenizer, options);
  return 0;
}
