// Renders chat templates from lines of JSON, for tests that compare them with jinja2.
//
// Each input line is {"template": ..., "context": {...}} and gives {"text": ...} or {"error": ...}. With
// "repeat": N the template is rendered N times more and "microseconds" tells how long one of these took.
// "iterates_content" tells what the template expects. strftime_now always sees 2024-07-26 09:05:03.
#include <chrono>
#include <iostream>

#include "base/json.h"
#include "jinja_clock.h"
#include "serve/jinja/template.h"

namespace {

vllm::Json answer(const vllm::Json& request) {
  const std::tm now = fixture_clock();
  const auto tree = vllm::jinja::Template::parse(request.at("template").get<std::string>());
  vllm::Json out;
  out["text"] = tree->render(request.at("context"), now);
  out["iterates_content"] = tree->iterates_content();
  if (const int repeat = request.value("repeat", 0)) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) tree->render(request.at("context"), now);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    out["microseconds"] = took.count() / repeat;
  }
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    vllm::Json out;
    try {
      out = answer(vllm::parse_json(line, "the line", vllm::Status::InvalidArgument));
    } catch (const vllm::Error& error) {
      out = {{"error", error.message()}};
    }
    std::cout << vllm::dump_json(out) << std::endl;
  }
  return 0;
}
