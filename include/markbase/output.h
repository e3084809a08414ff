// The output of a model taken apart: thoughts, the answer, calls of tools.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/export.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase {

class Tokenizer;

struct ParsedOutput {
  std::string reasoning;
  std::vector<std::string> labels;  // of channels of thought that are not called "thought"
  std::string content;              // broken calls included, where they stood
  std::vector<ToolCall> tool_calls;
  std::vector<BrokenCall> broken_calls;
  std::string after_end;      // what was written past the end of the answer
  std::string finish_reason;  // "stop", "length", "tool_calls", "cancelled"
};

// Takes an output apart as it comes, by the control tokens of the model's vocabulary; where it has
// none for thoughts and calls, everything is content. One output each.
class MB_EXPORT OutputParser {
 public:
  // `tokenizer` must outlive it.
  explicit OutputParser(const Tokenizer& tokenizer);
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;
  ~OutputParser();

  // Before the first push: the prompt, or its end, which tells whether the output begins inside a
  // thought.
  void continue_from(std::span<const int32_t> prompt_ids);
  void continue_from(std::string_view prompt_text);

  // As ids or as text, not both. In ids, control tokens spelled with ordinary ones are text; text
  // may be cut anywhere. Returns what is certain now.
  std::vector<OutputPiece> push(std::span<const int32_t> ids);
  std::vector<OutputPiece> push_text(std::string_view bytes);
  // Whether a marker has ended the output.
  bool ended() const;
  // `reason`: why generation ended, if no marker has ended it: "stop", "length", "cancelled". Call
  // it once, at the end. `rest`, if given, takes the pieces that were still held back.
  ParsedOutput finish(std::string_view reason, std::vector<OutputPiece>* rest = nullptr);

 private:
  struct MB_LOCAL Impl;
  std::unique_ptr<Impl> impl_;
};

// The tools that a model was told of.
class MB_EXPORT ToolDeclarations {
 public:
  // A list of {"type": "function", "function": {"name", "description", "parameters"}}, or of the
  // inner objects. Errors (kUsage): anything else.
  static Result<ToolDeclarations> from_json(std::string_view text);
  ToolDeclarations(ToolDeclarations&&) noexcept;
  ToolDeclarations& operator=(ToolDeclarations&&) noexcept;
  ~ToolDeclarations();

  // What is wrong with a call, one line each: names, types, required and enumerated values; empty:
  // nothing.
  std::vector<std::string> faults(const ToolCall& call) const;

 private:
  struct MB_LOCAL Impl;
  MB_LOCAL explicit ToolDeclarations(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace markbase
