#include "engine/self_test.h"

#include <doctest/doctest.h>

#include <functional>
#include <set>

#include "all_devices.h"
#include "base/error.h"
#include "device/reference/reference_device.h"
#include "model/model.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

/// The reference device with a fault in the results of some operations.
class Faulty final : public ReferenceDevice {
 public:
  using Condition = std::function<bool(const StepBatch&)>;
  /// `faulty`: the operation. Only the steps of `when` are.
  Faulty(std::string faulty, Condition when) : faulty_(std::move(faulty)), when_(std::move(when)) {}

  void begin_step(const StepBatch& batch) override {
    batch_ = &batch;
    ReferenceDevice::begin_step(batch);
  }
  void embed(const DeviceWeight& table, float scale, const Tensor& out) override {
    ReferenceDevice::embed(table, scale, out);
    spoil("embed", out);
  }
  void rms_norm(const Tensor& x, const Tensor& weight, float eps, bool accumulate,
                const Tensor& out) override {
    ReferenceDevice::rms_norm(x, weight, eps, accumulate, out);
    spoil("rms_norm", out);
  }
  void matmul(std::span<const DeviceWeight* const> weights, const Tensor& x, const Tensor* bias,
              bool accumulate, const Tensor& out) override {
    ReferenceDevice::matmul(weights, x, bias, accumulate, out);
    spoil(std::string("matmul ") + format_info(weights[0]->format).name, out);
  }
  void norm_rope(const Tensor& x, int heads, const Tensor* norm, float eps, const RopeSpec& rope) override {
    ReferenceDevice::norm_rope(x, heads, norm, eps, rope);
    spoil("norm_rope", x);
  }
  void attention(const KvCache& cache, int layer, const Tensor& q, const AttentionSpec& spec,
                 const Tensor& out) override {
    ReferenceDevice::attention(cache, layer, q, spec, out);
    spoil(spec.window > 0 ? "attention window" : "attention", out);
  }
  void delta_rule(StateCache& cache, int layer, const Tensor& qkv, const Tensor& a, const Tensor& b,
                  const Tensor& decay, const Tensor& dt_bias, const Tensor& out) override {
    ReferenceDevice::delta_rule(cache, layer, qkv, a, b, decay, dt_bias, out);
    spoil("delta_rule", out);
  }
  void causal_conv(StateCache& cache, int layer, const Tensor& weight, const Tensor& x) override {
    ReferenceDevice::causal_conv(cache, layer, weight, x);
    spoil("causal_conv", x);
  }
  void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) override {
    ReferenceDevice::gated(act, gate, up, out);
    spoil("gated", out);
  }
  void experts(const RouterSpec& router, std::span<const ExpertWeights> experts, Activation act,
               const Tensor& x, const Tensor& logits, bool accumulate, const Tensor& out) override {
    ReferenceDevice::experts(router, experts, act, x, logits, accumulate, out);
    spoil("experts", out);
    spoil(std::string("experts ") + format_info(experts[0].gate->format).name, out);
  }
  void add_gated_rows(const Tensor& x, const Tensor& gate, const Tensor& out) override {
    ReferenceDevice::add_gated_rows(x, gate, out);
    spoil("add_gated_rows", out);
  }
  void gather_logit_rows(const Tensor& x, const Tensor& out) override {
    ReferenceDevice::gather_logit_rows(x, out);
    spoil("gather_logit_rows", out);
  }
  void softcap(float cap, const Tensor& x) override {
    ReferenceDevice::softcap(cap, x);
    spoil("softcap", x);
  }
  void read_largest(const Tensor& src, int count, RankedValue* dst) override {
    ReferenceDevice::read_largest(src, count, dst);
    if (faulty_ == "read_largest") std::swap(dst[0], dst[1]);
  }

 private:
  /// The last row becomes that of zeros, which is far away but harmless.
  void spoil(const std::string& operation, const Tensor& out) {
    if (operation != faulty_ || !when_(*batch_)) return;
    const std::vector<float> zeros(static_cast<size_t>(out.cols));
    write(out.row_range(out.rows - 1, 1), zeros.data());
  }

  std::string faulty_;
  Condition when_;
  const StepBatch* batch_ = nullptr;
};

/// What the self-test of a model says of the device; "" when it passes.
std::string verdict_of(const std::string& path, Device& device) {
  const auto checkpoint = Checkpoint::open(path);
  const auto cpu = make_cpu_device(2);
  const auto model = Model::load(*checkpoint, device);
  try {
    self_test(*checkpoint, *model, KvFormat::BF16, 32, device, *cpu);
  } catch (const Error& error) {
    CHECK(error.status() == Status::ModelLoad);
    return error.message();
  }
  return "";
}

std::string verdict(const std::string& tiny_model, Device& device) {
  return verdict_of(tiny::folder(tiny_model), device);
}

bool always(const StepBatch&) { return true; }

}  // namespace

TEST_CASE("a device that computes what the CPU computes passes") {
  for (const std::string model : {"llama", "gemma2", "qwen3_5-moe"}) {
    CAPTURE(model);
    Faulty none("", always);
    CHECK(verdict(model, none) == "");
  }
}

TEST_CASE("a device with an operation that is wrong is refused, by its name") {
  const struct {
    const char *model, *operation, *words;
  } cases[] = {
      {"llama", "embed", "rows of "},
      {"llama", "rms_norm", "rms norms"},
      {"llama", "norm_rope", "rotary positions"},
      {"llama", "attention", "attention"},
      {"llama", "gated", "gated activations"},
      {"llama", "gather_logit_rows", "rows for logits"},
      {"llama", "read_largest", "the largest value but 0"},
      {"gemma2", "softcap", "gated activations"},
      {"gemma2", "attention window", "attention over "},
      {"qwen3_5-moe", "causal_conv", "gated DeltaNet"},
      {"qwen3_5-moe", "delta_rule", "gated DeltaNet"},
      {"qwen3_5-moe", "experts", "a mixture of experts"},
      {"qwen3_5-moe", "add_gated_rows", "rows of a shared expert"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.operation);
    Faulty device(c.operation, always);
    const std::string said = verdict(c.model, device);
    CHECK_MESSAGE(said.find(c.words) != std::string::npos, said);
    CHECK_MESSAGE(said.find(device.description()) == 0, said);
  }
}

TEST_CASE("a device is refused for what goes wrong with many rows, one, or behind many tokens, alone") {
  Faulty many("rms_norm", [](const StepBatch& batch) { return batch.rows() > 8; });
  CHECK(verdict("llama", many).find("of 40 rows") != std::string::npos);
  const auto one_row = [](const StepBatch& batch) { return batch.rows() == 1; };
  for (const char* operation : {"rms_norm", "matmul F32", "attention"}) {
    CAPTURE(operation);
    Faulty one(operation, one_row);
    CHECK(verdict("llama", one).find("of 1 row ") != std::string::npos);
  }
  Faulty late("attention", [](const StepBatch& batch) { return batch.positions[0] > 256; });
  CHECK(verdict("llama", late).find("attention behind 600 tokens") != std::string::npos);
}

TEST_CASE("each format of a model is tried, those of stacked experts alone too") {
  const std::string path = std::string(FIXTURES) + "/llama_cpp/qwen3moe.gguf";
  const auto checkpoint = Checkpoint::open(path);
  std::set<std::string> formats;
  for (const auto& [name, weight] : checkpoint->weights())
    if (weight.shape.size() >= 2) formats.insert(format_info(weight.format).name);
  REQUIRE(formats.size() >= 4);
  for (const std::string& format : formats) {
    CAPTURE(format);
    Faulty device("matmul " + format, always);
    CHECK(verdict_of(path, device).find(" of " + format + " of 5 rows") != std::string::npos);
  }
}

TEST_CASE("experts are tried in each format that they have, with one row and with several") {
  const std::string path = std::string(FIXTURES) + "/llama_cpp/qwen3moe.gguf";
  const auto checkpoint = Checkpoint::open(path);
  std::set<std::string> formats;
  for (const auto& [name, weight] : checkpoint->weights())
    if (name.find("ffn_gate_exps") != std::string::npos) formats.insert(format_info(weight.format).name);
  REQUIRE(formats.size() >= 2);
  for (const std::string& format : formats) {
    CAPTURE(format);
    for (const int rows : {5, 40, 1}) {
      CAPTURE(rows);
      Faulty device("experts " + format, [&](const StepBatch& batch) { return batch.rows() == rows; });
      const std::string said = verdict_of(path, device);
      CHECK_MESSAGE(said.find("a mixture of experts of layer ") != std::string::npos, said);
      CHECK_MESSAGE(said.find(" in " + format + ", ") != std::string::npos, said);
      CHECK_MESSAGE(said.find(vllm::format(" of %d row", rows)) != std::string::npos, said);
    }
  }
}

TEST_CASE("every device of this machine passes with experts of several formats") {
  for (const char* model : {"qwen3moe", "qwen35moe"}) {
    CAPTURE(std::string(model));
    for (const test::TestDevice& each : test::all_devices()) {
      CAPTURE(each.kind);
      CHECK(verdict_of(std::string(FIXTURES) + "/llama_cpp/" + model + ".gguf", *each.device) == "");
    }
  }
}
