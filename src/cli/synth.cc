#include "base/error.h"
#include "cli/cli.h"
#include "cli/report.h"

namespace markbase::cli {
namespace {

struct SynthFlags {
  tools::SynthOptions options;
  bool quiet = false;
  bool json = false;
};

Result<int> synth(SynthFlags& flags) {
  MB_TRY(check_output_name("OUT", flags.options.out));
  ProgressLine line(!flags.quiet);
  const GracefulInterrupt graceful;
  flags.options.progress = [&](const Progress& p) { line.show(p); };
  flags.options.cancelled = [] { return interrupted(); };
  MB_ASSIGN(const std::string document, tools::synth_json(flags.options));
  line.clear();
  MB_ASSIGN(const base::Json parsed, base::parse_json(document, "report"));
  MB_TRY(print(flags.json ? base::dump_json(parsed, 2) + "\n" : report_text(parsed)));
  return 0;
}

}  // namespace

Action make_synth(CLI::App& app) {
  auto flags = std::make_shared<SynthFlags>();
  app.add_option("SIZE", flags->options.size,
                 fmt::format("{}", fmt::join(tools::synth_size_names(), ", ")))
      ->required();
  app.add_option("OUT", flags->options.out, "a directory to make, or a GGUF file")->required();
  app.add_option("--to", flags->options.format, tools::synth_format_names())->required();
  app.add_option("--layers", flags->options.num_layers, "the first layers only")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}));
  app.add_option("--seed", flags->options.seed, "the same seed gives the same bytes");
  app.add_option("--threads", flags->options.num_threads,
                 "threads (default: the cores this process may use)")
      ->check(CLI::Range(1, kMostThreads));
  app.add_flag("-q,--quiet", flags->quiet, "nothing on stderr but errors");
  app.add_flag("--json", flags->json, "one JSON document on stdout");
  return [flags] { return synth(*flags); };
}

}  // namespace markbase::cli
