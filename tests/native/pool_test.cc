#include "device/cpu/pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/cpu/isa.h"
#include "device/cpu/machine.h"

using namespace vllm;
using namespace vllm::cpu;

TEST_CASE("every part of every job runs exactly once and run() returns after all") {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    std::vector<int> count(threads, 0);  // written without atomics: run() must order the accesses
    for (int i = 0; i < 2000; ++i) {
      pool.run([&](int part) { ++count[part]; });
      for (int c : count) REQUIRE(c == i + 1);
    }
  }
}

TEST_CASE("jobs run again after the threads have gone to sleep") {
  ThreadPool pool(3);
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run([&](int part) {
      if (part == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the caller may have to sleep, too
      ++runs;
    });
    CHECK(runs == 3 * (i + 1));
  }
}

TEST_CASE("a thread that is held up leaves its part to the others") {
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<int> runs{0};
  // Both threads are in this job; the one in part 1 is held up, so that it is late for nothing but its own
  // part.
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    release = true;
  });
  pool.run([&](int part) {
    while (part == 1 && !release) std::this_thread::yield();
    ++runs;
  });
  other.join();
  CHECK(runs == 2);
  // A sleeping worker does not delay short jobs: the caller takes its part.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread::id ran[2];
  pool.run([&](int part) { ran[part] = std::this_thread::get_id(); });
  CHECK(ran[0] != std::thread::id());
  CHECK(ran[1] != std::thread::id());
}

TEST_CASE("a pool asked for no threads has the caller's") {
  ThreadPool pool(0);
  CHECK(pool.threads() == 1);
  int runs = 0;
  pool.run([&](int thread) { runs += 1 + thread; });
  CHECK(runs == 1);
}

TEST_CASE("share() cuts a range into contiguous parts at the grain") {
  for (int64_t n : {0, 1, 5, 16, 100, 1000})
    for (int parts : {1, 2, 3, 8})
      for (int64_t grain : {1, 16}) {
        int64_t at = 0;
        for (int p = 0; p < parts; ++p) {
          const Range r = share(n, p, parts, grain);
          CHECK(r.begin == at);
          CHECK(r.end >= r.begin);
          CHECK((r.end == n || r.end % grain == 0));
          CHECK(r.end - r.begin <= (n / grain / parts + 2) * grain);
          at = r.end;
        }
        CHECK(at == n);
      }
}

TEST_CASE("instruction sets are chosen by name and refused with the names there are") {
  CHECK(choose_isa("baseline") == Isa::Baseline);
  CHECK(choose_isa(isa_name(best_isa())) == best_isa());
  setenv("VLLM_CPU_ISA", "baseline", 1);
  CHECK(choose_isa("") == Isa::Baseline);
  unsetenv("VLLM_CPU_ISA");
  CHECK(choose_isa("") == best_isa());
  try {
    choose_isa("sse9");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.status() == Status::InvalidArgument);
    CHECK(e.message().find("sse9") != std::string::npos);
    CHECK(e.message().find("baseline") != std::string::npos);
  }
}

TEST_CASE("the machine has at least one core and some memory") {
  CHECK(available_cores() >= 1);
  CHECK(physical_cores() >= 1);
  CHECK(physical_cores() <= available_cores());
  CHECK(available_memory() > (1u << 20));
  CHECK(available_memory() < (size_t{1} << 50));
}
