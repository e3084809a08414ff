// stress MARKBASE [--model PATH] [--minutes M] [--suites a,b] [--seed N] [--cases N] [--threads N]
// The engine under load; see stress.h. A summary as JSON on stdout; exit code 1 for any fault, 2
// for a usage error. Without --minutes so many requests as a test takes, on a small model of random
// weights.
#include "stress/stress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "markbase/tools.h"

namespace markbase::stress {
namespace {

struct Named {
  const char* name;
  Suite run;
};
constexpr Named kSuites[] = {{"concurrent", concurrent},
                             {"memory", memory},
                             {"continuous", continuous},
                             {"batch", batch},
                             {"long_running", long_running}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool known(const std::string& suite) {
  for (const Named& named : kSuites) {
    if (named.name == suite) return true;
  }
  return false;
}

std::optional<Options> parse(int argc, char** argv) {
  Options options;
  if (argc < 2) return {};
  options.program = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const char* value = argv[i + 1];
    if (option == "--model") {
      options.model = value;
    } else if (option == "--minutes") {
      options.minutes = std::atof(value);
    } else if (option == "--suites") {
      options.suites = split(value);
    } else if (option == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (option == "--cases") {
      options.num_cases = std::strtoull(value, nullptr, 10);
    } else if (option == "--threads") {
      options.num_threads = std::atoi(value);
    } else {
      return {};
    }
  }
  if (argc % 2 != 0 || options.minutes < 0 || options.num_cases == 0) return {};
  for (const std::string& suite : options.suites) {
    if (!known(suite)) return {};
  }
  if (options.suites.empty()) {
    for (const Named& named : kSuites) options.suites.emplace_back(named.name);
  }
  return options;
}

Result<void> make_model(Options* options) {
  if (!options->model.empty()) return {};
  tools::SynthOptions synth;
  synth.size = "tiny-e2b";
  synth.format = "gguf-q8_0";
  synth.out = options->folder + "/tiny.gguf";
  synth.seed = options->seed;
  MB_TRY(tools::synth_json(synth));
  options->model = synth.out;
  return {};
}

base::Json run_suites(const Options& options, const Reference& reference, bool* ok) {
  base::Json suites = base::Json::array();
  for (const Named& named : kSuites) {
    if (std::ranges::find(options.suites, named.name) == options.suites.end()) continue;
    std::fprintf(stderr, "%s\n", named.name);
    Report report(named.name);
    named.run(options, reference, report);
    *ok = *ok && report.ok();
    suites.push_back(report.json());
  }
  return suites;
}

int run(Options options) {
  Report alone("reference");
  if (Result<void> made = make_model(&options); !made.ok()) {
    std::fprintf(stderr, "stress: %s\n", made.error().message.c_str());
    return 1;
  }
  const Result<Reference> reference = compute_reference(options, alone);
  if (!reference.ok()) {
    std::fprintf(stderr, "stress: %s\n", reference.error().message.c_str());
    return 1;
  }
  bool ok = alone.ok();
  base::Json suites = base::Json::array({alone.json()});
  for (base::Json& suite : run_suites(options, *reference, &ok)) suites.push_back(std::move(suite));
  const base::Json summary = {{"model", std::filesystem::path(options.model).filename().string()},
                              {"seed", options.seed},
                              {"minutes", options.minutes},
                              {"suites", suites},
                              {"ok", ok}};
  std::printf("%s\n", base::dump_json(summary, 2).c_str());
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace markbase::stress

int main(int argc, char** argv) {
  auto options = markbase::stress::parse(argc, argv);
  if (!options) {
    std::fprintf(stderr,
                 "usage: stress MARKBASE [--model PATH] [--minutes M] [--suites concurrent,memory,"
                 "continuous,batch,long_running] [--seed N] [--cases N] [--threads N]\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "markbase-stress-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("stress: no folder for files");
    return 1;
  }
  options->folder = folder;
  const int code = markbase::stress::run(*options);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return code;
}
