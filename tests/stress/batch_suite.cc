// The suite `batch`: the command line, interrupted and gone on with.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

#include "stress/stress.h"

namespace markbase::stress {
namespace {

std::string request_line(const Request& request, size_t id) {
  const SamplingOptions& s = request.sampling;
  base::Json json = {{"id", id},
                     {"ids", request.ids},
                     {"max_tokens", request.max_tokens},
                     {"temperature", s.temperature},
                     {"top_k", s.top_k},
                     {"top_p", s.top_p},
                     {"min_p", s.min_p},
                     {"repetition_penalty", s.repetition_penalty},
                     {"seed", s.seed},
                     {"ignore_eos", request.ignore_eos},
                     {"n", request.num_answers},
                     {"priority", request.priority}};
  if (request.top_logprobs >= 0) json["top_logprobs"] = request.top_logprobs;
  return base::dump_json(json);
}

TokenLogprob logprob_of(const base::Json& json) {
  // What is no number is null in JSON.
  const bool finite = json["logprob"].is_number();
  return {json["id"].get<int32_t>(),
          finite ? json["logprob"].get<float>() : std::numeric_limits<float>::quiet_NaN()};
}

Completion completion_of(const base::Json& json) {
  Completion completion;
  completion.text = json["text"].get<std::string>();
  completion.ids = json["ids"].get<std::vector<int32_t>>();
  completion.finish_reason = json["finish_reason"].get<std::string>();
  if (json["reasoning"].is_string()) completion.reasoning = json["reasoning"].get<std::string>();
  if (!json.contains("logprobs")) return completion;
  for (const base::Json& place : json["logprobs"]) {
    TokenLogprobs token{logprob_of(place), {}};
    for (const base::Json& top : place["top"]) token.top.push_back(logprob_of(top));
    completion.logprobs.push_back(std::move(token));
  }
  return completion;
}

size_t lines_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  size_t count = 0;
  while (std::getline(file, line)) ++count;
  return count;
}

class Program {
 public:
  Program(const Options& options, const std::string& in, const std::string& out) {
    const std::string context = std::to_string(kContextTokens);
    std::vector<std::string> args = {options.program,   "batch", options.model, "-f",    in,
                                     "--out",           out,     "--ctx",       context, "-q",
                                     "--max-sequences", "8"};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      dup2(null, STDIN_FILENO);
      dup2(null, STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  int pid() const { return pid_; }
  // Its status as the shell says it; nothing while it runs.
  std::optional<int> ended() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return {};
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int pid_ = -1;
};

// To its end, or to the signal when so many lines are there.
int run(const Options& options, const std::string& in, const std::string& out, size_t stop_at,
        int signal) {
  Program program(options, in, out);
  for (bool told = false;;) {
    if (const std::optional<int> status = program.ended()) return *status;
    if (!told && lines_in(out) >= stop_at) {
      told = true;
      kill(program.pid(), signal);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void check_line(const std::string& text, const std::vector<const Case*>& asked,
                std::vector<int>* times, Report& report) {
  const Result<base::Json> parsed = base::parse_json(text, "answer");
  if (!parsed.ok()) return report.fault(Fault::kLost, parsed.error().message);
  const base::Json& line = *parsed;
  if (line.contains("error")) return report.fault(Fault::kFailed, text);
  const auto id = line["id"].get<size_t>();
  if (id >= asked.size()) return report.fault(Fault::kMixedUp, text);
  ++(*times)[id];
  const Case& expected = *asked[id];
  const bool single = expected.request.num_answers == 1;
  const base::Json answers = single ? base::Json::array({line}) : line["answers"];
  if (answers.size() != expected.expected.size()) return report.fault(Fault::kLost, text);
  for (size_t i = 0; i < answers.size(); ++i) {
    const Completion got = completion_of(answers[i]);
    check_completion(got, expected.expected[i], true, report);
    report.answer(got);
  }
}

void one_batch(const Options& options, const Reference& reference, size_t num_lines, Random& random,
               Report& report) {
  const std::string in = options.folder + "/in.jsonl";
  const std::string out = options.folder + "/out.jsonl";
  std::filesystem::remove(out);
  std::vector<const Case*> asked;
  std::ofstream file(in);
  for (size_t i = 0; i < num_lines; ++i) {
    asked.push_back(&reference.cases[below(random, reference.cases.size())]);
    file << request_line(asked.back()->request, i) << '\n';
  }
  file.close();
  for (const int signal : {SIGINT, SIGKILL}) {
    const size_t stop_at = below(random, num_lines);
    const int status = run(options, in, out, stop_at, signal);
    if (status != 0 && status != 130 && status != 128 + SIGKILL) {
      return report.fault(Fault::kFailed, fmt::format("batch ended with {}", status));
    }
  }
  const int status = run(options, in, out, num_lines + 1, SIGINT);
  if (status != 0) report.fault(Fault::kFailed, fmt::format("batch ended with {}", status));
  std::vector<int> times(num_lines, 0);
  std::ifstream answers(out);
  std::string line;
  while (std::getline(answers, line)) check_line(line, asked, &times, report);
  for (size_t i = 0; i < num_lines; ++i) {
    if (times[i] == 0) report.fault(Fault::kLost, fmt::format("no answer to request {}", i));
    if (times[i] > 1) report.fault(Fault::kRepeated, fmt::format("{} answers to one", times[i]));
  }
}

}  // namespace

void batch(const Options& options, const Reference& reference, Report& report) {
  constexpr size_t kShortLines = 120;
  constexpr size_t kLongLines = 500;
  Random random(options.seed + 5);
  Pace pace(options, 2);
  while (pace.next() && report.ok()) {
    one_batch(options, reference, options.minutes > 0 ? kLongLines : kShortLines, random, report);
  }
}

}  // namespace markbase::stress
