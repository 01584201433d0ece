// What is the Vulkan device's own: choice of a device, memory, order of commands, weights in parts, the
// pipeline cache. Its operations are held to the reference by the tests over all devices.
#ifdef VLLM_VULKAN
#include "device/vulkan/vulkan_device.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "device_rig.h"
#include "model/model.h"
#include "tiny_models.h"

using namespace vllm;
using namespace vllm::test;
using namespace vllm::vulkan;

namespace {

std::string refusal(const char* name) {
  try {
    make_device(name, 1);
  } catch (const Error& e) {
    CHECK(e.status() == Status::ModelLoad);
    return e.message();
  }
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a device is chosen by name, and one that is not there is refused with those that are") {
  REQUIRE(!vulkan_devices().empty());
  for (const char* name : {"vulkan:99", "vulkan:4294967296"}) {
    CHECK(has(refusal(name), "no Vulkan device"));
    CHECK(has(refusal(name), vulkan_devices()[0]));
  }
  for (const char* name : {"vulkan:", "vulkan:x", "vulkan:1x", "vulkan:-1", "vulkan :0", "gpu", ""})
    CHECK(has(refusal(name), "needed is"));
  CHECK(has(make_device("vulkan:0", 1)->description(), vulkan_devices()[0]));
  CHECK(make_device("cpu", 1)->description().starts_with("cpu"));
}

TEST_CASE("kernels are chosen by features of the device, and one that it lacks is refused") {
  const auto instance = Instance::open();
  Gpu gpu = choose_gpu(*instance, "vulkan");
  CHECK(feature_names(choose_features(gpu, "none")).empty());
  const std::string all = feature_names(gpu.features);
  CHECK(feature_names(choose_features(gpu, all.empty() ? "none" : all)) == all);
  CHECK(feature_names(choose_features(gpu, {})) == feature_names(gpu.fast));
  gpu.features = {};
  gpu.features.storage16 = true;
  for (const char* name :
       {"integer_dot", "storage16,float16", "storage16,,", "x", "none,none", " storage16"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH_AS(choose_features(gpu, name), doctest::Contains("storage16"), Error);
  }
  setenv("VLLM_VULKAN_FEATURES", "storage16", 1);
  CHECK(choose_features(gpu, {}).storage16);
  setenv("VLLM_VULKAN_FEATURES", "none", 1);
  CHECK(!choose_features(gpu, {}).storage16);
  CHECK(!has(make_device("vulkan", 1)->description(), "storage16"));
  CHECK(choose_features(gpu, "storage16").storage16);
  unsetenv("VLLM_VULKAN_FEATURES");
  // What rounds activations to fp16 is used when asked for alone.
  for (const Gpu& each : list_gpus(*instance)) CHECK(!(each.fast.float16 || each.fast.cooperative_matrix));
}

TEST_CASE("auto never takes a driver on the CPU") {
  CHECK(make_device("auto", 1)->description().starts_with("cpu") == first_gpu().empty());
  const auto instance = Instance::open();
  for (const Gpu& gpu : list_gpus(*instance))
    if (gpu.kind != GpuKind::Cpu && gpu.unfit.empty()) CHECK(!first_gpu().empty());
}

TEST_CASE("misuse of Vulkan is reported by the layers that the environment names" * doctest::skip()) {
  const Context context("vulkan");
  VkBufferCreateInfo buffer{};  // for no use
  buffer.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer.size = 256;
  VkBuffer made = VK_NULL_HANDLE;
  if (context.vk().vkCreateBuffer(context.device(), &buffer, nullptr, &made) == VK_SUCCESS)
    context.vk().vkDestroyBuffer(context.device(), made, nullptr);
  VkMemoryAllocateInfo info{};  // so little that it is slow
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.allocationSize = 256;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  context.check(context.vk().vkAllocateMemory(context.device(), &info, nullptr, &memory),
                "allocating memory");
  context.vk().vkFreeMemory(context.device(), memory, nullptr);
}

TEST_CASE("ranges of memory are apart, aligned and come back") {
  const Context context("vulkan");
  Memory memory(context);
  Random random(1);
  std::vector<Range> taken;
  std::set<std::pair<uint64_t, uint64_t>> spans;  // by address
  for (int i = 0; i < 3000; ++i) {
    if (taken.size() < 200 && random.uniform() < 0.6) {
      const auto bytes = static_cast<size_t>(std::exp(random.uniform() * 14));
      const Range range = memory.allocate(bytes, MemoryKind::Device);
      CHECK(range.bytes == bytes);
      CHECK(range.offset % Memory::kAlignment == 0);
      const auto next = spans.lower_bound({range.address, 0});
      if (next != spans.end()) CHECK(range.address + bytes <= next->first);
      if (next != spans.begin()) CHECK(std::prev(next)->second <= range.address);
      spans.insert({range.address, range.address + bytes});
      taken.push_back(range);
    } else if (!taken.empty()) {
      std::swap(taken[random.bits() % taken.size()], taken.back());
      spans.erase({taken.back().address, taken.back().address + taken.back().bytes});
      memory.free(taken.back());
      taken.pop_back();
    }
  }
  CHECK(memory.used() > 0);
  for (const Range& range : taken) memory.free(range);
  CHECK(memory.used() == 0);
  // What was cut up is whole again.
  const Range large = memory.allocate(size_t{64} << 20, MemoryKind::Device);
  memory.free(large);
  const Range upload = memory.allocate(100, MemoryKind::Upload);
  CHECK(upload.host != nullptr);
  memory.free(upload);
}

TEST_CASE("uses of memory overlap when they share a byte") {
  Random random(2);
  const auto any = [&] {
    Use use;
    use.address = 1000 + random.bits() % 40;
    use.rows = 1 + random.bits() % 4;
    use.width = 1 + random.bits() % 6;
    use.stride = use.rows == 1 ? 0 : std::max<uint64_t>(use.width, random.bits() % 2 ? 8 : 12);
    return use;
  };
  const auto bytes = [](const Use& use) {
    std::set<uint64_t> out;
    for (uint64_t r = 0; r < use.rows; ++r)
      for (uint64_t i = 0; i < use.width; ++i) out.insert(use.address + r * use.stride + i);
    return out;
  };
  int apart = 0, columns = 0;
  for (int i = 0; i < 20000; ++i) {
    const Use a = any(), b = any();
    const auto of_a = bytes(a), of_b = bytes(b);
    const bool shared = std::any_of(of_a.begin(), of_a.end(), [&](uint64_t x) { return of_b.count(x) != 0; });
    CHECK((overlap(a, b) || !shared));
    CHECK(overlap(a, b) == overlap(b, a));
    if (overlap(a, b)) continue;
    ++apart;
    columns += *of_a.rbegin() > *of_b.begin() && *of_b.rbegin() > *of_a.begin();
  }
  CHECK(apart > 1000);
  CHECK(columns > 100);  // of one matrix are told apart
}

TEST_CASE("commands that depend on each other run in order, over many submissions") {
  VulkanDevice device("vulkan");
  const auto cpu = make_cpu_device(1);
  const int rows = 3, cols = 40;
  const auto x = Random(3).gauss(rows * 4 * cols);
  std::vector<float> results[2];
  Device* const devices[] = {cpu.get(), &device};
  for (int d = 0; d < 2; ++d) {
    Rig rig(*devices[d]);
    const Tensor all = rig.tensor(rows, 4 * cols, x, 3),
                 weight = rig.tensor(1, cols, std::vector<float>(cols, 1.0f));
    Random random(4);
    for (int i = 0; i < 900; ++i) {
      const auto part = [&] { return all.columns(static_cast<int64_t>(random.bits() % 4) * cols, cols); };
      const Tensor from = part(), to = part();
      devices[d]->rms_norm(from, weight, 1e-5f, from.offset != to.offset, to);
      if (i % 100 == 50) devices[d]->write(to, x.data());
    }
    results[d] = rig.read(all);
  }
  expect_close(results[0], results[1], 1e-3, 1e-3);
}

TEST_CASE("activations as int8 keep not-a-number, nothing and numbers of any size") {
  const auto instance = Instance::open();
  if (!choose_gpu(*instance, "vulkan").features.integer_dot) return;
  VulkanDevice device("vulkan", "integer_dot");
  const int cols = 64, outputs = 3;
  const Weights weights(Format::Q8_0, outputs, cols, 3);
  const auto reference = make_reference_device();
  // One number of a row is the largest of its block of 32, and another block is of ordinary size.
  for (const float top : {0.0f, 1e-38f, 1e-30f, 1.0f, 1e30f, INFINITY, NAN}) {
    CAPTURE(top);
    for (const int rows : {1, 12}) {
      std::vector<float> x(static_cast<size_t>(rows * cols), 0.0f), results[2];
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < cols; ++i)
          x[static_cast<size_t>(r * cols + i)] = i < 32 ? (i == r ? top : 0) : 127;
      Device* const devices[] = {reference.get(), &device};
      for (int d = 0; d < 2; ++d) {
        Rig rig(*devices[d]);
        const auto packed = devices[d]->pack(weights.view, false);
        const DeviceWeight* const list[] = {packed.get()};
        const Tensor out = rig.tensor(rows, outputs, {});
        devices[d]->matmul(list, rig.tensor(rows, cols, x), nullptr, false, out);
        results[d] = rig.read(out);
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        CHECK(std::isfinite(results[1][i]) == std::isfinite(top));
        if (std::isfinite(top)) CHECK(results[1][i] == doctest::Approx(results[0][i]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("products in fp16 agree with the reference, and a row has the same bits in any batch") {
  const auto instance = Instance::open();
  const Features has_features = choose_gpu(*instance, "vulkan").features;
  for (const char* feature : {"float16", "cooperative_matrix"}) {
    CAPTURE(feature);
    if (!(feature[0] == 'f' ? has_features.float16 : has_features.cooperative_matrix)) continue;
    VulkanDevice device("vulkan", feature);
    const auto reference = make_reference_device();
    const int rows = 37, outputs = 83;
    for (const Format format : {Format::F32, Format::F16, Format::BF16, Format::Q4_0, Format::Q6_K}) {
      CAPTURE(std::string(format_info(format).name));
      const int cols = format_info(format).block_size == 1 ? 133 : 256;
      Weights weights(format, outputs, cols, 21);
      if (format == Format::Q4_0) {
        auto order = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(cols));
        for (int i = 0; i < cols; ++i) (*order)[static_cast<size_t>(i)] = i * 7 % cols;
        weights.view.order = order;
      }
      // Rows of very different sizes, beyond what fp16 holds.
      auto x = Random(22).gauss(rows * cols);
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < cols; ++i)
          x[static_cast<size_t>(r * cols + i)] *= std::exp2(static_cast<float>(r * 5 - 90));
      const auto y = Random(23).gauss(rows * outputs, 1e-3f), b = Random(24).gauss(outputs, 1e-3f);
      const auto product = [&](Device& on, int first, int count) {
        Rig rig(on);
        const auto packed = on.pack(weights.view, false);
        const DeviceWeight* const list[] = {packed.get()};
        const auto part = [&](const std::vector<float>& all, int width) {
          return std::vector<float>(all.begin() + first * width, all.begin() + (first + count) * width);
        };
        const Tensor out = rig.tensor(count, outputs, part(y, outputs), 1), bias = rig.tensor(1, outputs, b);
        on.matmul(list, rig.tensor(count, cols, part(x, cols), 3), &bias, true, out);
        return rig.read(out);
      };
      const auto want = product(*reference, 0, rows), whole = product(device, 0, rows);
      for (int r = 0; r < rows; ++r) {
        // Roundings of 2^-12 to both sides of a product.
        double error = 0, size = 0;
        for (int o = 0; o < outputs; ++o) {
          const auto i = static_cast<size_t>(r * outputs + o);
          error += std::pow(static_cast<double>(whole[i]) - want[i], 2);
          size += std::pow(static_cast<double>(want[i]), 2);
        }
        CHECK(std::sqrt(error) <= (format == Format::F32 ? 3e-6 : 5e-4) * std::sqrt(size));
      }
      std::vector<float> pieces;
      int at = 0;
      for (const int size : {1, 16, 20}) {
        const auto got = product(device, at, size);
        pieces.insert(pieces.end(), got.begin(), got.end());
        at += size;
      }
      REQUIRE(at == rows);
      expect_equal(whole, pieces);
    }
  }
}

TEST_CASE("a weight in several buffers gives what it gives in one") {
  for (const std::string& features : {std::string("none"), vulkan_features("vulkan")}) {
    CAPTURE(features);
    VulkanDevice whole("vulkan", features), parted("vulkan", features, 4000);
    const int rows = 3, cols = 512, outputs = 61;
    StepBatch batch = rows_from(0, rows);
    batch.token_ids = {60, 0, 17};
    const auto x = Random(5).gauss(rows * cols), b = Random(6).gauss(outputs);
    for (const Format format : {Format::F16, Format::Q4_0, Format::Q6_K}) {
      Weights weights(format, outputs, cols, 7);
      auto scale = std::make_shared<std::vector<float>>(outputs);
      for (int i = 0; i < outputs; ++i) (*scale)[static_cast<size_t>(i)] = 1.0f + static_cast<float>(i) / 64;
      weights.view.scale = scale;
      std::vector<float> results[2];
      Device* const devices[] = {&whole, &parted};
      for (int d = 0; d < 2; ++d) {
        Device& device = *devices[d];
        Rig rig(device);
        const auto packed = device.pack(weights.view, false);
        CHECK(packed->bytes == device.packed_bytes(weights.view, false));
        const DeviceWeight* const list[] = {packed.get(), packed.get()};
        const Tensor out = rig.tensor(rows, 2 * outputs, {}, 2), bias = rig.tensor(1, 2 * outputs, {}),
                     looked_up = rig.tensor(rows, cols, {});
        device.write(bias.columns(outputs, outputs), b.data());
        device.begin_step(batch);
        device.matmul(list, rig.tensor(rows, cols, x), &bias, false, out);
        device.embed(*packed, 2.0f, looked_up);
        device.end_step();
        results[d] = rig.read(out);
        const auto more = rig.read(looked_up);
        results[d].insert(results[d].end(), more.begin(), more.end());
      }
      CHECK(rms(results[0]) > 0);
      expect_equal(results[0], results[1]);
    }
    const Weights wide(Format::F32, 2, 2000, 1);
    CHECK_THROWS_AS(parted.pack(wide.view, false), Error);
  }
}

TEST_CASE("experts are refused before they are packed when a matrix of theirs takes more than one buffer") {
  for (const std::string& path :
       {tiny::folder("qwen3-moe"), FIXTURES + std::string("/llama_cpp/qwen3moe.gguf")}) {
    CAPTURE(path);
    const auto checkpoint = Checkpoint::open(path);
    size_t most = 0;  // of a matrix
    VulkanDevice plenty("vulkan");
    for (const auto& [name, weight] : checkpoint->weights()) {
      if (name.find("exps") == std::string::npos && name.find(".experts.") == std::string::npos) continue;
      WeightView view = weight.view();
      if (weight.shape.size() == 3) view.rows /= weight.shape[0];
      most = std::max(most, plenty.packed_bytes(view, false));
    }
    REQUIRE(most > 0);
    VulkanDevice enough("vulkan", {}, most), less("vulkan", {}, most - 1);
    Model::open(*checkpoint, enough);
    CHECK_THROWS_WITH_AS(Model::open(*checkpoint, less),
                         doctest::Contains(vllm::format("has at most %zu in one buffer", most - 1).c_str()),
                         Error);
  }
}

TEST_CASE("more is read and written at once than staging memory holds") {
  VulkanDevice device("vulkan");
  const int64_t rows = 3, cols = 2 << 20;
  Rig rig(device);
  const auto x = Random(8).gauss(static_cast<size_t>(rows * cols));
  expect_equal(x, rig.read(rig.tensor(rows, cols, x, 5)));
  const std::vector<float> zeros = rig.read(rig.tensor(rows, cols, {}));
  CHECK(std::all_of(zeros.begin(), zeros.end(), [](float v) { return v == 0; }));
}

TEST_CASE("a step that fails halfway does not spoil the next") {
  VulkanDevice device("vulkan");
  Rig rig(device);
  const auto x = Random(9).gauss(2 * 64);
  const Tensor t = rig.tensor(2, 64, x), out = rig.tensor(1, 64, {});
  StepBatch batch = rows_from(0, 2);
  batch.logit_rows = {1};
  for (int i = 0; i < 5; ++i) {
    device.begin_step(batch);
    CHECK_THROWS_AS(device.gather_logit_rows(t, t), Error);  // no end_step, as in an engine whose step threw
  }
  device.begin_step(batch);
  device.gather_logit_rows(t, out);
  device.end_step();
  expect_equal({x.begin() + 64, x.end()}, rig.read(out));
}

TEST_CASE("pipelines are kept on disk, and a damaged file does no harm") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       vllm::format("vulkan-cache-test-%d", static_cast<int>(getpid()));
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before ? before : "";
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  const auto compute = [] {
    VulkanDevice device("vulkan");
    Rig rig(device);
    const Tensor x = rig.tensor(1, 8, std::vector<float>(8, 3.0f));
    device.softcap(1.0f, x);
    CHECK(rig.read(x)[0] == doctest::Approx(std::tanh(3.0f)));
  };
  const auto files = [&] {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "vllm"))
      out.push_back(entry.path());
    return out;
  };
  compute();
  REQUIRE(files().size() == 1);
  const std::filesystem::path file = files()[0];
  CHECK(std::filesystem::file_size(file) > 0);
  compute();
  const auto content = [&] {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string whole = content();
  std::string header_alone = whole, byte_more = whole;  // right is the header
  header_alone.resize(sizeof(VkPipelineCacheHeaderVersionOne));
  byte_more.insert(header_alone.size(), "x");
  REQUIRE(whole.size() > header_alone.size());
  for (const std::string& damaged : {std::string(), std::string("no cache"), header_alone, byte_more,
                                     whole.substr(0, whole.size() - 1), "x" + whole.substr(1)}) {
    CAPTURE(damaged.size());
    std::ofstream(file, std::ios::binary) << damaged;
    compute();
    CHECK(content() != damaged);  // it was not taken for a cache
  }
  CHECK(files().size() == 1);
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "a file where the folder should be";
  compute();
  std::filesystem::remove(folder);
  before ? setenv("XDG_CACHE_HOME", saved.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}
#endif
