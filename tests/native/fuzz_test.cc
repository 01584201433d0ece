// Damaged texts into everything that reads texts from outside or from a model: nothing may crash, hang, take
// much memory or break the rules of fuzz_targets.h.
//
// The inputs that are damaged: tests/fixtures/corpus/TARGET/*, one a file, and the cases of other fixtures.
// An input that fails belongs into the corpus. While an input runs, and when it ends the process, it lies in
// fuzz-TARGET.input in the working directory.
//
//   VLLM_FUZZ_SECONDS=300 VLLM_FUZZ_SEED=7 fuzz_test -sc=jinja      longer, with other damages
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <set>

#include "allocation_meter.h"
#include "fuzz_targets.h"

using namespace vllm;
using namespace vllm::fuzz;

namespace {

// Sanitizers make everything many times dearer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kFewer = 8, kSlower = 20, kBigger = 4;
#else
constexpr int kFewer = 1, kSlower = 1, kBigger = 1;
#endif
constexpr size_t kMostInputs = 3000;

/// The input that runs, in a mapped file: it stays when the process ends.
class RunningInput {
 public:
  explicit RunningInput(const std::string& target) : path_("fuzz-" + target + ".input") {
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    REQUIRE(file_ >= 0);
    REQUIRE(ftruncate(file_, kBytes) == 0);
    memory_ = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~RunningInput() {
    munmap(memory_, kBytes);
    close(file_);
    if (!kept_) unlink(path_.c_str());
  }
  RunningInput(const RunningInput&) = delete;
  RunningInput& operator=(const RunningInput&) = delete;

  /// Zero bytes behind the input are not part of it.
  void set(const std::string& input) {
    REQUIRE(input.size() < kBytes);
    std::memcpy(memory_, input.data(), input.size());
    std::memset(memory_ + input.size(), 0, kBytes - input.size());
  }
  /// Cuts the file to the input and leaves it.
  void keep(const std::string& input) { kept_ = ftruncate(file_, static_cast<off_t>(input.size())) == 0; }

 private:
  static constexpr size_t kBytes = 1 << 17;
  std::string path_;
  char* memory_ = nullptr;
  int file_ = -1;
  bool kept_ = false;
};

/// Ends the process when one input takes this much processor time.
void bound_cpu(int seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

/// The mark of the input; throws Violation. Chance depends on the input alone, so that a failure comes again.
std::string run(const Target& target, const std::string& input) {
  std::string mark;
  Random random(std::hash<std::string>()(input));
  bound_cpu(static_cast<int>(target.cpu_seconds * kSlower * 10) + 1);
  const double start = cpu_seconds();
  const size_t peak = test::peak_growth([&] { mark = target.run(input, random); });
  const double took = cpu_seconds() - start;
  bound_cpu(0);
  require(took <= target.cpu_seconds * kSlower, "it takes too long", std::to_string(took) + " s");
  require(peak <= target.memory_mib * kBigger << 20, "it takes too much memory",
          std::to_string(peak >> 20) + " MiB");
  return mark;
}

std::vector<std::string> corpus_of(const Target& target) {
  std::vector<std::string> inputs;
  for (const auto& file : files_in(FIXTURES "/corpus/" + std::string(target.name)))
    inputs.push_back(read_file(file));
  CHECK(!inputs.empty());
  for (std::string& seed : target.seeds()) inputs.push_back(std::move(seed));
  return inputs;
}

std::vector<std::string> words_of(const Target& target) {
  std::vector<std::string> words = read_json("corpus/words.json").at(target.name);
  if (target.name == std::string_view("tool_calls")) {
    for (const std::string& name : tool_dialect_names())
      for (const std::string_view trigger : tool_dialect_triggers(find_tool_dialect(name)))
        words.emplace_back(trigger);
  }
  return words;
}

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

/// Runs all inputs as they are, then damaged ones: `rounds` of them, or for VLLM_FUZZ_SECONDS. Nothing, or
/// what failed.
std::optional<std::string> find_failure(const Target& target, const std::vector<std::string>& words,
                                        std::vector<std::string> inputs, int rounds) {
  Mutator random(words, static_cast<uint64_t>(number_from("VLLM_FUZZ_SEED", 1)));
  const int seconds = number_from("VLLM_FUZZ_SECONDS", 0);
  const size_t given = inputs.size();
  const size_t last = given + static_cast<size_t>(rounds);
  std::set<std::string> marks;
  RunningInput running(target.name);
  const auto start = std::chrono::steady_clock::now();
  const auto goes_on = [&](size_t round) {
    if (round < given) return true;
    return seconds == 0 ? round < last
                        : std::chrono::steady_clock::now() - start < std::chrono::seconds(seconds);
  };
  size_t round = 0;
  for (; goes_on(round); ++round) {
    std::string input = round < given ? inputs[round] : random.one_of(inputs);
    if (round >= given) input = random.mutate(std::move(input), random.one_of(inputs));
    running.set(input);
    try {
      if (marks.insert(run(target, input)).second && round >= given && inputs.size() < kMostInputs)
        inputs.push_back(input);
    } catch (const Violation& violation) {
      running.keep(input);
      return format("%s, round %zu: %s\ninput: ", target.name, round, violation.what.c_str()) +
             dump_json(input);
    }
  }
  MESSAGE(format("%s: %zu rounds, %zu kinds of results", target.name, round, marks.size()));
  CHECK(marks.size() > 5);
  return std::nullopt;
}

}  // namespace

TEST_CASE("Damaged texts are refused or read, in bounded time and memory") {
  for (const Target& target : targets()) {
    SUBCASE(target.name) {
      const auto failure = find_failure(target, words_of(target), corpus_of(target), target.rounds / kFewer);
      CHECK_MESSAGE(!failure, failure.value_or(""));
    }
  }
}

TEST_CASE("What breaks a rule, takes long or much memory is found") {
  const auto found = [](std::string (*work)(const std::string&, Random&)) {
    const Target target{"itself", nullptr, work, 0, 0.05, 8};
    return find_failure(target, {"<"}, {"a<b"}, 1000).value_or("");
  };
  CHECK(found([](const std::string& text, Random&) {
          require(text.find("<<") == std::string::npos, "doubled");
          return std::string();
        }).find("doubled\ninput: ") != std::string::npos);
  CHECK(found([](const std::string& text, Random&) {
          const double start = cpu_seconds();
          while (text.find("<<") != std::string::npos && cpu_seconds() - start < 0.1 * kSlower) continue;
          return std::string();
        }).find("takes too long") != std::string::npos);
  CHECK(found([](const std::string& text, Random&) {
          const std::string much(text.find("<<") == std::string::npos ? 0 : (10 * kBigger) << 20, 'x');
          return std::string(much, 0, 0);
        }).find("too much memory") != std::string::npos);
  std::filesystem::remove("fuzz-itself.input");
}
