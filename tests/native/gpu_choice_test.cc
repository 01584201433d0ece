// Which of several GPUs a name means.
#include "device/gpu_choice.h"

#include <doctest/doctest.h>

using namespace vllm;

TEST_CASE("GPUs with memory of their own come first and drivers on the CPU last; equals stay in order") {
  const std::vector<GpuDescription> listed = {{"integrated 1", GpuKind::Integrated, ""},
                                              {"other", GpuKind::Other, ""},
                                              {"driver 1", GpuKind::Cpu, ""},
                                              {"discrete 1", GpuKind::Discrete, ""},
                                              {"virtual", GpuKind::Virtual, ""},
                                              {"discrete 2", GpuKind::Discrete, "it is old"},
                                              {"driver 2", GpuKind::Cpu, ""},
                                              {"integrated 2", GpuKind::Integrated, ""}};
  const auto sorted = [](std::vector<GpuDescription> gpus) {
    sort_gpus(gpus);
    std::string out;
    for (const GpuDescription& gpu : gpus) out += gpu.name + ",";
    return out;
  };
  CHECK(sorted(listed) == "discrete 1,discrete 2,integrated 1,integrated 2,virtual,other,driver 1,driver 2,");
  CHECK(sorted({listed.rbegin(), listed.rend()}) ==
        "discrete 2,discrete 1,integrated 2,integrated 1,virtual,other,driver 2,driver 1,");
}

TEST_CASE("auto takes the first GPU that can be used and no driver on the CPU, which vulkan takes at need") {
  struct Case {
    std::vector<GpuDescription> gpus;
    std::optional<size_t> of_auto, of_vulkan;
  };
  const GpuDescription discrete{"discrete", GpuKind::Discrete, ""},
      old{"old", GpuKind::Discrete, "it has Vulkan 1.1, needed is 1.2"},
      integrated{"integrated", GpuKind::Integrated, ""}, other{"other", GpuKind::Other, ""},
      driver{"driver", GpuKind::Cpu, ""}, broken{"broken", GpuKind::Cpu, "it has no queue that computes"};
  const Case cases[] = {
      {{discrete, integrated, driver}, 0, 0}, {{old, integrated, driver}, 1, 1},
      {{old, other, driver}, 1, 1},           {{old, driver}, std::nullopt, 1},
      {{driver, driver}, std::nullopt, 0},    {{old, broken}, std::nullopt, std::nullopt},
      {{}, std::nullopt, std::nullopt},
  };
  for (const Case& c : cases) {
    std::string names;
    for (const GpuDescription& gpu : c.gpus) names += gpu.name + ",";
    CAPTURE(names);
    CHECK(first_usable(c.gpus, false) == c.of_auto);
    CHECK(first_usable(c.gpus, true) == c.of_vulkan);
  }
}
