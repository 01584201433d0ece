// Stop strings in text that arrives in pieces, against a search in the whole text.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>

#include "text/detokenizer.h"
#include "tokenizer_files.h"

using namespace vllm;

namespace {

struct Result {
  std::string text;
  int matched = -1;
  bool operator==(const Result&) const = default;
};

/// The obvious search: the stop whose end comes first, the first of the list on ties.
Result search(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t i = 0; i < stops.size(); ++i) {
      if (text.substr(0, end).ends_with(stops[i])) {
        return {text.substr(0, include ? end : end - stops[i].size()), static_cast<int>(i)};
      }
    }
  }
  return {text, -1};
}

Result feed(const std::string& text, const std::vector<std::string>& stops, bool include,
            const std::function<size_t()>& size) {
  StopMatcher matcher(stops, include);
  Result result;
  size_t held = 0;
  for (size_t at = 0; at < text.size();) {
    const std::string piece = text.substr(at, size());
    at += piece.size();
    const std::string shown = matcher.add(piece);
    result.text += shown;
    held = at - result.text.size();
    if (matcher.matched() >= 0) {
      CHECK(matcher.add("more") == "");
      break;
    }
    // What is held back is the longest end of the text that a stop begins with.
    size_t want = 0;
    for (const std::string& stop : stops) {
      for (size_t length = std::min(stop.size() - 1, at); length > want; --length) {
        if (text.substr(0, at).ends_with(stop.substr(0, length))) want = length;
      }
    }
    CHECK(held == want);
  }
  result.text += matcher.finish();
  result.matched = matcher.matched();
  return result;
}

}  // namespace

TEST_CASE("STOP-01: nothing of a stop string over several pieces is shown") {
  StopMatcher matcher({"DEFGHIJ"}, false);
  CHECK(matcher.add("ABC") == "ABC");
  CHECK(matcher.add("DEF") == "");
  CHECK(matcher.add("G") == "");
  CHECK(matcher.add("HI") == "");
  CHECK(matcher.matched() == -1);
  CHECK(matcher.add("J") == "");
  CHECK(matcher.matched() == 0);
  CHECK(matcher.finish() == "");
  StopMatcher including({"DEFGHIJ"}, true);
  CHECK(including.add("ABCDEFGHIJK") == "ABCDEFGHIJ");
  CHECK(including.matched() == 0);
}

TEST_CASE("STOP-02: the stop that completes first wins, the first of the list on ties") {
  StopMatcher first({"longer stop", "stop"}, false);
  CHECK(first.add("a longer stop") == "a ");
  CHECK(first.matched() == 0);
  StopMatcher second({"stop", "longer stop"}, false);
  CHECK(second.add("a longer stop") == "a longer ");
  CHECK(second.matched() == 0);
  StopMatcher earlier({"abcd", "bc"}, false);
  CHECK(earlier.add("xabcd") == "xa");
  CHECK(earlier.matched() == 1);
  StopMatcher none({}, false);
  CHECK(none.add("text") == "text");
  CHECK(none.finish() == "");
  CHECK(none.matched() == -1);
  CHECK(message_of(Status::InvalidArgument, [] { StopMatcher matcher({"a", ""}, false); }).find("1") !=
        std::string::npos);
}

TEST_CASE("text that no stop can begin with any more is shown at once") {
  StopMatcher matcher({"\n\nHuman:"}, false);
  CHECK(matcher.add("one\n") == "one");
  CHECK(matcher.add("two") == "\ntwo");
  CHECK(matcher.add("\n\nHum") == "");
  CHECK(matcher.add("ble\n\n") == "\n\nHumble");
  CHECK(matcher.add("\n") == "\n");
  CHECK(matcher.finish() == "\n\n");
  CHECK(matcher.matched() == -1);
}

TEST_CASE("random texts and stops give what a search in the whole text gives") {
  std::mt19937 random(9);
  for (int round = 0; round < 3000; ++round) {
    const int letters = 2 + static_cast<int>(random() % 2);
    const auto word = [&](size_t longest) {
      std::string out;
      for (size_t left = 1 + random() % longest; left > 0; --left)
        out += static_cast<char>('a' + random() % letters);
      return out;
    };
    std::vector<std::string> stops;
    for (size_t left = 1 + random() % 4; left > 0; --left) stops.push_back(word(6));
    const std::string text = word(40);
    const bool include = random() % 2;
    CAPTURE(text);
    CAPTURE(Json(stops).dump());
    const Result want = search(text, stops, include);
    for (const size_t cut : {1, 2, 3, 7, 100}) CHECK(feed(text, stops, include, [&] { return cut; }) == want);
    CHECK(feed(text, stops, include, [&] { return 1 + random() % 5; }) == want);
  }
}

TEST_CASE("characters of several bytes stay whole") {
  StopMatcher matcher({"\xc3\xa9nd"}, false);
  CHECK(matcher.add("caf\xc3\xa9") == "caf");
  CHECK(matcher.add("\xc3\xa8") == "\xc3\xa9\xc3\xa8");
  CHECK(matcher.add("\xc3\xa9nd") == "");
  CHECK(matcher.matched() == 0);
}

TEST_CASE("stop strings of one letter take linear time") {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> stops;
  for (int i = 0; i < 8; ++i) stops.push_back(std::string(65536 - i, 'a') + "b");
  StopMatcher matcher(stops, false);
  std::string shown;
  for (int i = 0; i < 20; ++i) shown += matcher.add(std::string(65000, 'a') + "c");
  for (int i = 0; i < 65530; ++i) shown += matcher.add("a");
  CHECK(shown.size() == 20 * 65001);
  CHECK(matcher.add("b") == "");  // 65530 letters: the seventh, and the eighth at the same place
  CHECK(matcher.matched() == 6);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}
