// The reference device against torch and transformers (tools/make_device_fixtures.py).
#include <fstream>
#include <nlohmann/json.hpp>

#include "device_rig.h"

using namespace vllm;
using namespace vllm::test;

namespace {

const nlohmann::json& fixtures() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(FIXTURES "/device_ops.json"));
  return all;
}

std::vector<float> floats(const nlohmann::json& list) { return list.get<std::vector<float>>(); }

// The fixtures are f32 results printed with eight digits.
constexpr double kRelative = 1e-5, kAbsolute = 2e-6;

}  // namespace

TEST_CASE("reference rms_norm is transformers' LlamaRMSNorm") {
  for (const auto& f : fixtures()["rms_norm"]) {
    const auto device = make_reference_device();
    Rig rig(*device);
    const Tensor x = rig.tensor(f["rows"], f["cols"], floats(f["x"]));
    device->rms_norm(x, rig.tensor(1, f["cols"], floats(f["weight"])), f["eps"], false, x);
    expect_close(floats(f["out"]), rig.read(x), kRelative, kAbsolute);
  }
}

TEST_CASE("reference rope is transformers' for halves and a complex product for neighbours") {
  for (const auto& f : fixtures()["rope"]) {
    const auto device = make_reference_device();
    Rig rig(*device);
    const int rows = f["rows"], heads = f["heads"], head_dim = f["head_dim"];
    const RopeSpec rope{floats(f["inv_freq"]), f["interleaved"], 1.0f};
    const Tensor x = rig.tensor(rows, heads * head_dim, floats(f["x"]));
    const StepBatch batch = rows_from(f["first"], rows);
    device->begin_step(batch);
    device->norm_rope(x, heads, nullptr, 0, rope);
    device->end_step();
    // inv_freq is printed with eight digits, enough for its f32 value.
    expect_close(floats(f["out"]), rig.read(x), kRelative, 1e-5);
  }
}

TEST_CASE("reference activations and softcap are torch's") {
  const auto device = make_reference_device();
  Rig rig(*device);
  for (const auto& f : fixtures()["gated"]) {
    const Tensor gate = rig.tensor(f["rows"], f["cols"], floats(f["gate"]));
    const Tensor up = rig.tensor(f["rows"], f["cols"], floats(f["up"]));
    device->gated(f["act"] == "silu" ? Activation::Silu : Activation::GeluTanh, gate, up, up);
    expect_close(floats(f["out"]), rig.read(up), kRelative, kAbsolute);
  }
  for (const auto& f : fixtures()["softcap"]) {
    const Tensor x = rig.tensor(f["rows"], f["cols"], floats(f["x"]));
    device->softcap(f["cap"], x);
    expect_close(floats(f["out"]), rig.read(x), kRelative, kAbsolute);
  }
}

TEST_CASE("reference matmul is torch's linear") {
  for (const auto& f : fixtures()["matmul"]) {
    const auto device = make_reference_device();
    Rig rig(*device);
    const auto w = std::make_shared<std::vector<float>>(floats(f["w"]));
    const auto weight = device->pack(
        {Format::F32, f["outputs"], f["cols"], reinterpret_cast<const uint8_t*>(w->data()), w}, false);
    const DeviceWeight* list[] = {weight.get()};
    const Tensor out = rig.tensor(f["rows"], f["outputs"], {}),
                 bias = rig.tensor(1, f["outputs"], floats(f["b"]));
    device->matmul(list, rig.tensor(f["rows"], f["cols"], floats(f["x"])), &bias, false, out);
    expect_close(floats(f["out"]), rig.read(out), kRelative, kAbsolute);
  }
}

TEST_CASE("reference attention is transformers' eager attention, causal, with window and softcap") {
  for (const auto& f : fixtures()["attention"]) {
    const auto device = make_reference_device();
    Rig rig(*device);
    AttentionSpec spec{f["heads"], f["kv_heads"], f["head_dim"], f["scale"], f["window"], f["softcap"]};
    const int tokens = f["tokens"], q_cols = spec.heads * spec.head_dim,
              kv_cols = spec.kv_heads * spec.head_dim;
    KvCacheSpec cache_spec;
    cache_spec.layers = {{spec.kv_heads, spec.head_dim}};
    cache_spec.block_size = 16;
    cache_spec.num_blocks = 3;
    cache_spec.format = KvFormat::F32;
    const auto cache = device->make_kv_cache(cache_spec);
    const Tensor out = rig.tensor(tokens, q_cols, {});
    const StepBatch batch = rows_from(0, tokens, 3);
    device->begin_step(batch);
    device->write_kv(*cache, 0, rig.tensor(tokens, kv_cols, floats(f["k"])),
                     rig.tensor(tokens, kv_cols, floats(f["v"])));
    device->attention(*cache, 0, rig.tensor(tokens, q_cols, floats(f["q"])), spec, out);
    device->end_step();
    expect_close(floats(f["out"]), rig.read(out), kRelative, kAbsolute);
  }
}
