// Deltas of a stream: merged for a slow consumer, never lost.
#include "engine/stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <thread>

using namespace vllm;

TEST_CASE("a slow consumer gets several tokens at once and the newest totals") {
  Stream stream;
  for (int i = 0; i < 3; ++i) {
    Delta delta;
    delta.text = std::string(1, static_cast<char>('a' + i));
    delta.token_ids = {i};
    delta.completion_tokens = i + 1;
    if (i == 2) delta.finish = FinishReason::Stop;
    stream.push(std::move(delta));
  }
  const Delta got = stream.wait();
  CHECK(got.text == "abc");
  CHECK(got.token_ids == std::vector<int32_t>{0, 1, 2});
  CHECK(got.completion_tokens == 3);
  CHECK(got.finished());
}

TEST_CASE("every token arrives once, in order, across threads") {
  Stream stream;
  constexpr int kTokens = 20000;
  std::thread producer([&] {
    for (int i = 0; i < kTokens; ++i) {
      Delta delta;
      delta.token_ids = {i};
      if (i + 1 == kTokens) delta.finish = FinishReason::Length;
      stream.push(std::move(delta));
    }
  });
  int next = 0;
  for (;;) {
    const Delta delta = stream.wait();
    for (int32_t id : delta.token_ids) {
      REQUIRE(id == next);
      ++next;
    }
    if (delta.finished()) break;
  }
  producer.join();
  CHECK(next == kTokens);
}

TEST_CASE(
    "a consumer that reads nothing for a whole answer costs the producer as much a token as for a tenth") {
  const auto processor_time = [](int tokens) {
    Stream stream;
    const std::clock_t begin = std::clock();
    for (int i = 0; i < tokens; ++i) {
      Delta delta;
      delta.text = "word ";
      delta.token_ids = {i};
      delta.logprobs.resize(1);
      stream.push(std::move(delta));
    }
    const std::clock_t end = std::clock();
    const Delta got = stream.wait();
    CHECK(got.token_ids.size() == static_cast<size_t>(tokens));
    CHECK(got.logprobs.size() == static_cast<size_t>(tokens));
    CHECK(got.text.size() == size_t{5} * tokens);
    return static_cast<double>(end - begin);
  };
  const double tenth = std::min({processor_time(20000), processor_time(20000), processor_time(20000)});
  const double whole = processor_time(200000);
  // 10 times as long when linear, 100 times when what waits is copied for each token.
  CHECK(whole < 40 * tenth);
}
