// Quantised safetensors checkpoints: rows and logits against the packages that define the layouts, and faulty
// ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "all_devices.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "edited_checkpoint.h"
#include "file_writers.h"
#include "logged.h"
#include "model/model.h"
#include "model_logits.h"
#include "tiny_models.h"
#include "weights/checkpoint.h"

using namespace vllm;
using tiny::floats;
using vllm::test::contains;
using vllm::test::load_error;
using vllm::test::logits_of;
using vllm::test::TempDir;

namespace {

const char* const kCases[] = {"fp8-channel",     "fp8-tensor",  "fp8-block",      "fp8-narrow", "fp8-experts",
                              "modelopt-fp8",    "nvfp4",       "modelopt-mixed", "gptq",       "gptq-v2",
                              "gptq-8bit",       "awq",         "awq-gemv",       "int4",       "int8",
                              "modelopt-hybrid", "nvfp4-hybrid"};

std::string folder(const std::string& name) { return std::string(FIXTURES) + "/quantised/" + name; }

Json json_file(const std::string& path) {
  return parse_json(read_text_file(path), path.c_str(), Status::Unknown);
}

double worst(const std::vector<float>& a, const float* b, double scale) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i)
    out = std::max(out, std::fabs(static_cast<double>(a[i]) - b[i]) / scale);
  return out;
}

double rms(const std::vector<float>& a, const float* b, double scale) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow((static_cast<double>(a[i]) - b[i]) / scale, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

/// A copy of a case whose tensors and configuration can be changed.
struct Edited {
  TempDir dir;
  Json header, config;
  std::string data;

  explicit Edited(const std::string& name) {
    const std::string file = read_text_file(folder(name) + "/model.safetensors");
    uint64_t size = 0;
    std::memcpy(&size, file.data(), 8);
    header = parse_json(std::string_view(file).substr(8, size), "header", Status::Unknown);
    header.erase("__metadata__");
    data = file.substr(8 + size);
    config = json_file(folder(name) + "/config.json");
    const std::string extra = folder(name) + "/hf_quant_config.json";
    if (std::filesystem::exists(extra)) dir.write("hf_quant_config.json", read_text_file(extra));
  }
  /// Gives a tensor other bytes, which are put at the end.
  void put(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape,
           const std::string& bytes) {
    header[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  std::string bytes_of(const std::string& name) {
    const auto offsets = header[name]["data_offsets"].get<std::vector<size_t>>();
    return data.substr(offsets[0], offsets[1] - offsets[0]);
  }
  std::string open() {
    dir.write("config.json", config.dump());
    dir.write("model.safetensors", test::safetensors_file(header.dump(), data));
    return dir.path;
  }
  /// The sentence with which the model is refused on the devices; "" when it loads.
  std::string refusal() {
    const std::string path = open();
    const auto message = [&](std::unique_ptr<Device> device) {
      try {
        const auto checkpoint = Checkpoint::open(path);
        const auto model = Model::load(*checkpoint, *device);
        logits_of(*model, *device, {1, 2, 3});
      } catch (const Error& error) {
        CHECK(error.status() == Status::ModelLoad);
        CHECK(error.message().find('\n') == std::string::npos);
        return error.message();
      }
      return std::string();
    };
    return message(make_cpu_device(2));
  }
};

const std::string kQ = "model.layers.0.self_attn.q_proj.";
const std::string kUp = "model.layers.1.mlp.up_proj.";

template <typename T>
std::string repeated(T value, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += test::raw(value);
  return out;
}

}  // namespace

TEST_CASE("rows of every quantised layout decode to the values of the layout's formula") {
  for (const std::string name : kCases) {
    CAPTURE(name);
    const auto checkpoint = Checkpoint::open(folder(name));
    const Json expected = json_file(folder(name) + "/expected.json");
    const std::vector<float> values = floats(folder(name) + "/expected_rows.f32");
    size_t at = 0, differing = 0;
    for (const Json& row : expected["rows"]) {
      const Weight* weight = checkpoint->find(row[0].get<std::string>());
      REQUIRE(weight != nullptr);
      const WeightView view = weight->view();
      std::vector<float> got(static_cast<size_t>(view.cols));
      view.decode_row(row[1].get<int64_t>(), got.data());
      REQUIRE(at + got.size() <= values.size());
      for (size_t c = 0; c < got.size(); ++c) {
        const float want = values[at + c];
        // Of two scales the package may multiply another pair first: that is one rounding.
        const bool two_scales = view.format == Format::NVFP4;
        const float slack = two_scales ? std::fabs(want) * 0x1p-22f : 0.0f;
        differing += !(std::fabs(got[c] - want) <= slack);
      }
      at += got.size();
    }
    CHECK(differing == 0);
    CHECK(at == values.size());
    CHECK(at > 1000);
  }
}

TEST_CASE("quantised checkpoints compute the logits of transformers with their unpacked weights") {
  for (const std::string name : kCases) {
    CAPTURE(name);
    const auto checkpoint = Checkpoint::open(folder(name));
    const Json expected = json_file(folder(name) + "/expected.json");
    const auto tokens = expected["token_ids"].get<std::vector<int32_t>>();
    const double std = expected["std"].get<double>();
    const std::vector<float> logits = floats(folder(name) + "/expected_logits.f32");
    const float* const exact = logits.data();
    const float* const int8 =
        logits.data() + logits.size() / 2;  // with the int8 activations of integer codes

    const auto reference = make_reference_device();
    const auto model = Model::load(*checkpoint, *reference);
    CHECK(worst(logits_of(*model, *reference, tokens), exact, std) < 1e-4);
    for (const test::TestDevice& each : test::all_devices()) {
      const auto& [kind, device] = each;
      CAPTURE(kind);
      const auto fast = Model::load(*checkpoint, *device);
      const std::vector<float> whole = logits_of(*fast, *device, tokens);
      REQUIRE(whole.size() == logits.size() / 2);
      // Where codes are integers an activation within rounding error of a half may take the next int8. That
      // they are int8 at all costs up to 0.3 at worst and 0.03 rms.
      const bool integers = !std::equal(exact, exact + whole.size(), int8);
      const float* const want = each.int8() ? int8 : exact;
      CHECK(worst(whole, want, std) < (integers ? 5e-2 : 1e-3));
      CHECK(rms(whole, want, std) < (integers ? 6e-3 : 1e-3));
      CHECK(logits_of(*fast, *device, tokens, 1) == whole);
    }
  }
}

TEST_CASE("the summary names the quantisation") {
  CHECK(contains(Checkpoint::open(folder("nvfp4"))->format_summary(),
                 "compressed-tensors NVFP4, W4A4 run weight-only (12 weights)"));
  const std::string mixed = Checkpoint::open(folder("modelopt-mixed"))->format_summary();
  CHECK(contains(mixed, "NVFP4 (7 weights)"));
  CHECK(contains(mixed, "FP8 by tensor, W8A8 run weight-only (8 weights)"));
  const auto summary = [](const char* name) { return Checkpoint::open(folder(name))->format_summary(); };
  CHECK(contains(summary("gptq"), "gptq GPTQ INT4 (14 weights)"));
  CHECK(contains(summary("gptq-8bit"), "gptq GPTQ INT8 (14 weights)"));
  CHECK(contains(summary("fp8-channel"), "FP8 by channel, W8A8 run weight-only (14 weights)"));
  CHECK(contains(summary("fp8-block"), "fp8 FP8 in blocks, W8A8 run weight-only (13 weights)"));
  CHECK(contains(summary("fp8-experts"), "FP8 in blocks, W8A8 run weight-only (12 weights)"));
  const std::string bytes = summary("int8");
  CHECK(contains(bytes, "INT8 (4 weights)"));
  CHECK(contains(bytes, "INT8 by channel, W8A8 run weight-only (8 weights)"));
  CHECK(contains(bytes, "INT8 by tensor, W8A8 run weight-only (2 weights)"));
}

TEST_CASE("the published layouts of hybrids load, and say once that other parts are left out") {
  const auto summary = [](const char* name) { return Checkpoint::open(folder(name))->format_summary(); };
  const std::string mixed = summary("modelopt-hybrid");  // experts, shared experts and the output
  CHECK(contains(mixed, "modelopt"));
  CHECK(contains(mixed, "NVFP4 (31 weights)"));
  CHECK(contains(mixed, "FP8 by tensor, W8A8 run weight-only (7 weights)"));
  CHECK(contains(summary("nvfp4-hybrid"), "compressed-tensors NVFP4, W4A4 run weight-only (11 weights)"));
  for (const char* name : {"modelopt-hybrid", "nvfp4-hybrid"}) {
    CAPTURE(name);
    const auto device = make_reference_device();
    const std::string log = test::logged([&] { Model::load(*Checkpoint::open(folder(name)), *device); });
    const std::string line = "6 tensors of parts that are not served are skipped (model.visual.";
    CHECK(contains(log, line));
    CHECK(log.find("skipped") == log.rfind("skipped"));
  }
}

TEST_CASE("layers of multi-token prediction are plain where no list says so") {
  Edited e("modelopt-fp8");
  e.put("mtp.fc.weight", "F16", {4, 8}, std::string(64, 0));
  e.put("mtp.layers.0.mlp.up_proj.weight", "F16", {4, 8}, std::string(64, 0));
  const auto checkpoint = Checkpoint::open(e.open());
  REQUIRE(checkpoint->find("mtp.fc.weight") != nullptr);
  CHECK(checkpoint->find("mtp.fc.weight")->format == Format::F16);
  CHECK(checkpoint->find("mtp.layers.0.mlp.up_proj.weight")->format == Format::F16);
}

TEST_CASE("FILE-09 a configuration and tensors that disagree are refused by name") {
  {
    Edited e("fp8-channel");
    e.config["quantization_config"]["ignore"] = Json::array();
    CHECK(contains(
        e.refusal(),
        "the configuration says FP8 by channel for the module 'lm_head', whose weight is plain F16"));
  }
  {
    Edited e("fp8-channel");
    e.config["quantization_config"]["ignore"].push_back("model.layers.0.self_attn.q_proj");
    CHECK(contains(e.refusal(), "'model.layers.0.self_attn.q_proj' has the tensors of a quantised weight"));
  }
  {
    Edited e("fp8-channel");
    e.config["quantization_config"]["ignore"].push_back("model.layers.0.self_attn.q_proj");
    e.header.erase(kQ + "weight_scale");
    CHECK(contains(e.refusal(), "q_proj.weight' has the type F8_E4M3, supported are F32"));
  }
  {
    Edited e("gptq");
    e.config.erase("quantization_config");
    CHECK(contains(e.refusal(), "the configuration has no scheme for it"));
  }
  {
    Edited e("nvfp4");
    e.config["quantization_config"]["config_groups"]["group_0"]["weights"] = {
        {"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
    CHECK(contains(e.refusal(), "the configuration says FP8 by channel for the module"));
  }
}

TEST_CASE("FILE-10 what is not implemented is refused by name") {
  const auto refusal = [](const char* name, const std::function<void(Json&)>& edit) {
    Edited e(name);
    edit(e.config["quantization_config"]);
    return e.refusal();
  };
  CHECK(contains(refusal("awq", [](Json& q) { q["quant_method"] = "bitsandbytes"; }), "bitsandbytes"));
  CHECK(contains(refusal("awq", [](Json& q) { q["version"] = "gemv_fast"; }), "gemv_fast"));
  CHECK(contains(refusal("awq", [](Json& q) { q["bits"] = 8; }), "bits"));
  CHECK(contains(refusal("gptq", [](Json& q) { q["bits"] = 3; }), "bits"));
  CHECK(contains(
      refusal("int8", [](Json& q) { q["config_groups"]["group_1"]["weights"]["strategy"] = "group"; }),
      "config_groups.group_1"));
  CHECK(contains(refusal("gptq", [](Json& q) { q["dynamic"] = {{"-:x", Json::object()}}; }), "dynamic"));
  CHECK(contains(refusal("gptq", [](Json& q) { q["checkpoint_format"] = "marlin"; }), "marlin"));
  CHECK(contains(refusal("int4", [](Json& q) { q["config_groups"]["group_1"]["weights"]["num_bits"] = 3; }),
                 "config_groups.group_1"));
  CHECK(contains(refusal("int4", [](Json& q) { q["transform_config"] = {{"config_groups", {{"a", 1}}}}; }),
                 "transform_config"));
  CHECK(contains(refusal("int4", [](Json& q) { q["sparsity_config"] = {{"format", "sparse-24-bitmask"}}; }),
                 "sparsity_config"));
  CHECK(contains(refusal("int4", [](Json& q) { q["config_groups"]["group_1"]["targets"] = {"re:(a"}; }),
                 "re:(a"));
  CHECK(contains(refusal("int4", [](Json& q) { q["ignore"] = {"re:(.+)+(.+)+[0-9]{9}$"}; }),
                 "cannot be matched"));
  CHECK(contains(refusal("fp8-tensor", [](Json& q) { q["kv_cache_scheme"]["type"] = "int"; }),
                 "kv_cache_scheme"));
  CHECK(contains(refusal("modelopt-mixed",
                         [](Json& q) { q["quantized_layers"]["lm_head"]["quant_algo"] = "NVFP4_AWQ"; }),
                 "NVFP4_AWQ"));
}

TEST_CASE("FILE-13 parts that make no weight are refused by name") {
  const auto refusal = [](const char* name, const std::function<void(Edited&)>& edit) {
    Edited e(name);
    edit(e);
    return e.refusal();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(refusal("fp8-channel", [](Edited&) {}).empty());
  CHECK(refusal("gptq", [](Edited&) {}).empty());
  // missing
  CHECK(contains(refusal("fp8-channel", [](Edited& e) { e.header.erase(kQ + "weight_scale"); }), "q_proj"));
  CHECK(contains(refusal("nvfp4", [](Edited& e) { e.header.erase(kUp + "weight_global_scale"); }),
                 "'weight_global_scale' is missing"));
  CHECK(contains(refusal("gptq", [](Edited& e) { e.header.erase(kQ + "g_idx"); }), "'g_idx' is missing"));
  CHECK(contains(refusal("awq", [](Edited& e) { e.header.erase(kQ + "qzeros"); }), "'qzeros' is missing"));
  // of another shape or dtype
  CHECK(contains(refusal("fp8-channel",
                         [](Edited& e) { e.put(kQ + "weight_scale", "F32", {63, 1}, repeated(1.0f, 63)); }),
                 "needed is F32 F16 BF16 [64, 1]"));
  CHECK(contains(
      refusal("fp8-channel", [](Edited& e) { e.put(kQ + "weight_scale", "I32", {64, 1}, repeated(1, 64)); }),
      "weight_scale' is I32"));
  CHECK(
      contains(refusal("fp8-block",
                       [](Edited& e) { e.put(kUp + "weight_scale_inv", "F32", {2, 1}, repeated(1.0f, 2)); }),
               "needed is F32 F16 BF16 [3, 1]"));
  CHECK(contains(
      refusal("nvfp4",
              [](Edited& e) { e.put(kUp + "weight_scale", "F8_E4M3", {128, 2}, std::string(256, 8)); }),
      "needed is F8_E4M3 [128, 4]"));
  CHECK(contains(
      refusal("nvfp4",
              [](Edited& e) { e.put(kUp + "weight_packed", "U8", {128, 24}, std::string(3072, 8)); }),
      "48 inputs, needed is a multiple of 64"));
  CHECK(contains(refusal("awq", [](Edited& e) { e.put(kQ + "scales", "F16", {1, 64}, std::string(128, 0)); }),
                 "needed is F32 F16 BF16 [2, 64]"));
  CHECK(contains(
      refusal("int4", [](Edited& e) { e.put(kUp + "weight_shape", "I64", {2}, repeated<int64_t>(64, 2)); }),
      "weight_shape' is 64 x 64, the codes are of 128 x 64"));
  CHECK(contains(refusal("gptq", [](Edited& e) { e.config["quantization_config"]["group_size"] = 48; }),
                 "64 inputs, needed is a multiple of 48"));
  CHECK(contains(refusal("awq",
                         [](Edited& e) {
                           e.config["quantization_config"]["group_size"] = 16;
                           const Json header = e.header;
                           for (const auto& [key, tensor] : header.items()) {
                             if (!key.ends_with("scales") && !key.ends_with("qzeros")) continue;
                             auto shape = tensor["shape"].get<std::vector<int64_t>>();
                             shape[0] *= 2;
                             e.put(key, tensor["dtype"], shape, e.bytes_of(key) + e.bytes_of(key));
                           }
                         }),
                 "groups of a multiple of 32"));
  // of values that make no sense
  CHECK(contains(refusal("gptq", [](Edited& e) { e.put(kQ + "g_idx", "I32", {64}, repeated(2, 64)); }),
                 "puts input 0 into group 2, there are 2"));
  CHECK(contains(
      refusal("gptq", [](Edited& e) { e.put(kQ + "g_idx", "I32", {64}, repeated(0, 63) + repeated(-1, 1)); }),
      "puts input 63 into group -1"));
  CHECK(contains(
      refusal("gptq", [](Edited& e) { e.put(kQ + "g_idx", "I32", {64}, repeated(0, 31) + repeated(1, 33)); }),
      "groups of a multiple of 32"));
  CHECK(contains(
      refusal("gptq",
              [](Edited& e) { e.put(kQ + "scales", "F16", {2, 64}, repeated<uint16_t>(0x7e00, 128)); }),
      "holds the scale nan"));
  for (const float bad : {0.0f, nan, std::numeric_limits<float>::infinity()}) {
    CHECK(contains(
        refusal("nvfp4", [&](Edited& e) { e.put(kUp + "weight_global_scale", "F32", {1}, test::raw(bad)); }),
        "needed is a finite number other than 0"));
    CHECK(contains(
        refusal("modelopt-fp8", [&](Edited& e) { e.put(kUp + "weight_scale", "F32", {}, test::raw(bad)); }),
        "needed is a finite number other than 0"));
  }
  CHECK(contains(
      refusal("nvfp4",
              [](Edited& e) { e.put(kUp + "weight_scale", "F8_E4M3", {128, 4}, std::string(512, '\x7f')); }),
      "holds the scale nan"));
  CHECK(contains(
      refusal("nvfp4",
              [](Edited& e) { e.put(kUp + "weight_scale", "F8_E4M3", {128, 4}, std::string(512, '\xb0')); }),
      "holds the scale -"));
  CHECK(contains(
      refusal("fp8-block",
              [](Edited& e) { e.put(kUp + "weight", "F8_E4M3", {128, 64}, std::string(8192, '\xff')); }),
      "holds NaN"));
  CHECK(contains(
      refusal("fp8-tensor",
              [](Edited& e) { e.put(kUp + "weight", "F8_E4M3", {128, 64}, std::string(8192, '\xff')); }),
      "holds NaN"));
  // a quantised tensor where a plain vector belongs
  CHECK(!refusal("awq", [](Edited& e) {
           e.header.erase("model.norm.weight");
           for (const char* part : {"qweight", "qzeros", "scales"})
             e.header[std::string("model.norm.") + part] = e.header[kQ + part];
           for (const char* part : {"qweight", "qzeros", "scales"}) {
             const std::string bytes = e.bytes_of(kQ + part);
             const Json t = e.header[kQ + part];
             e.put(std::string("model.norm.") + part, t["dtype"], t["shape"].get<std::vector<int64_t>>(),
                   bytes);
           }
         }).empty());
}

namespace {

/// A mixture of experts of random weights, those of the experts in the layout of a quantised case; and the
/// same with their values.
struct ExpertsCheckpoint {
  static constexpr int64_t kHidden = 64, kInner = 128, kVocab = 48;
  static constexpr int kExperts = 8;
  Json header, config;
  std::string data;
  uint64_t state = 7;

  uint32_t random() { return static_cast<uint32_t>((state = state * 6364136223846793005u + 1) >> 33); }
  float number() { return static_cast<float>(random()) * 0x1p-30f - 1.0f; }

  void put(const std::string& name, const char* dtype, const std::vector<int64_t>& shape,
           const std::string& bytes) {
    header[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  void put_floats(const std::string& name, const std::vector<int64_t>& shape, float center, float width) {
    std::string bytes;
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    for (int64_t i = 0; i < count; ++i) bytes += test::raw(center + width * number());
    put(name, "F32", shape, bytes);
  }
  std::string bytes(size_t count, const std::function<int()>& byte) {
    std::string out(count, 0);
    for (char& c : out) c = static_cast<char>(byte());
    return out;
  }
  void put_expert(const std::string& layout, const std::string& module, int64_t rows, int64_t cols) {
    const auto size = static_cast<size_t>(rows * cols);
    const auto any = [&] { return static_cast<int>(random() & 255); };
    if (layout == "fp8-channel") {
      put(module + "weight", "F8_E4M3", {rows, cols}, bytes(size, [&] { return any() & 0xbf; }));
      put_floats(module + "weight_scale", {rows, 1}, 0.3f, 0.2f);
    } else if (layout == "nvfp4") {
      put(module + "weight_packed", "U8", {rows, cols / 2}, bytes(size / 2, any));
      put(module + "weight_scale", "F8_E4M3", {rows, cols / 16},
          bytes(size / 16, [&] { return 0x30 + any() % 16; }));
      put(module + "weight_global_scale", "F32", {1}, test::raw(20.0f + number()));
    } else {
      put(module + "qweight", "I32", {cols / 8, rows}, bytes(size / 2, any));
      put(module + "qzeros", "I32", {cols / 32, rows / 8}, bytes(size / 64, any));
      std::string scales, groups;
      for (size_t i = 0; i < size / 32; ++i) scales += test::raw(f32_to_f16(0.02f + 0.01f * number()));
      put(module + "scales", "F16", {cols / 32, rows}, scales);
      const auto shift = static_cast<int64_t>(random());
      for (int64_t c = 0; c < cols; ++c)
        groups += test::raw(static_cast<int32_t>((5 * c + shift) % cols / 32));
      put(module + "g_idx", "I32", {cols}, groups);
    }
  }

  explicit ExpertsCheckpoint(const std::string& layout) {
    config = json_file(std::string(FIXTURES) + "/transformers/qwen3-moe/config.json");
    config["hidden_size"] = kHidden;
    config["moe_intermediate_size"] = kInner;
    config["vocab_size"] = kVocab;
    config["num_experts"] = kExperts;
    config["quantization_config"] = json_file(folder(layout) + "/config.json")["quantization_config"];
    if (config["quantization_config"].contains("config_groups"))
      config["quantization_config"]["config_groups"]["group_0"]["targets"] = {R"(re:.*mlp\.experts\..*)"};
    put_floats("model.embed_tokens.weight", {kVocab, kHidden}, 0, 1);
    put_floats("model.norm.weight", {kHidden}, 1, 0.2f);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
        put_floats(layer + norm + ".weight", {kHidden}, 1, 0.2f);
      for (const char* norm : {"q_norm", "k_norm"})
        put_floats(layer + "self_attn." + norm + ".weight", {16}, 1, 0.2f);
      put_floats(layer + "self_attn.q_proj.weight", {64, kHidden}, 0, 0.2f);
      put_floats(layer + "self_attn.k_proj.weight", {32, kHidden}, 0, 0.2f);
      put_floats(layer + "self_attn.v_proj.weight", {32, kHidden}, 0, 0.2f);
      put_floats(layer + "self_attn.o_proj.weight", {kHidden, 64}, 0, 0.2f);
      put_floats(layer + "mlp.gate.weight", {kExperts, kHidden}, 0, 1);
      for (int e = 0; e < kExperts; ++e) {
        const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
        put_expert(layout, expert + "gate_proj.", kInner, kHidden);
        put_expert(layout, expert + "up_proj.", kInner, kHidden);
        put_expert(layout, expert + "down_proj.", kHidden, kInner);
      }
    }
  }
  void write(const TempDir& dir) const {
    dir.write("config.json", config.dump());
    dir.write("model.safetensors", test::safetensors_file(header.dump(), data));
  }
  /// Puts the values of a checkpoint's joined weights in place of their parts.
  void unpack(const Checkpoint& checkpoint) {
    config.erase("quantization_config");
    const Json all = header;
    for (const auto& [name, tensor] : all.items())
      if (name.find(".experts.") != name.npos) header.erase(name);
    for (const auto& [name, weight] : checkpoint.weights()) {
      if (!weight.joined()) continue;
      const WeightView view = weight.view();
      std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
      for (int64_t r = 0; r < view.rows; ++r) view.decode_row(r, values.data() + r * view.cols);
      put(name, "F32", {view.rows, view.cols},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
  }
};

}  // namespace

TEST_CASE("experts of quantised tensors compute the logits of their values") {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 24; ++i) tokens.push_back(i * 7 % 48);
  for (const std::string layout : {"fp8-channel", "nvfp4", "gptq"}) {
    CAPTURE(layout);
    ExpertsCheckpoint e(layout);
    const TempDir quantised, plain;
    e.write(quantised);
    const auto checkpoint = Checkpoint::open(quantised.path);
    e.unpack(*checkpoint);
    e.write(plain);
    const auto values = Checkpoint::open(plain.path);
    REQUIRE(values->find("model.layers.1.mlp.experts.7.down_proj.weight")->format == Format::F32);

    const auto reference = make_reference_device();
    const std::vector<float> want = logits_of(*Model::load(*values, *reference), *reference, tokens);
    double std = 0;
    for (const float v : want) std += static_cast<double>(v) * v / static_cast<double>(want.size());
    std = std::sqrt(std);
    CHECK(worst(logits_of(*Model::load(*checkpoint, *reference), *reference, tokens), want.data(), std) <
          1e-5);
    for (const test::TestDevice& each : test::all_devices()) {
      const auto& [kind, device] = each;
      CAPTURE(kind);
      const auto model = Model::load(*checkpoint, *device);
      const std::vector<float> whole = logits_of(*model, *device, tokens);
      // Integer codes meet int8 activations.
      CHECK(rms(whole, want.data(), std) < (layout == "fp8-channel" ? 1e-4 : 0.03));
      CHECK(logits_of(*model, *device, tokens, 1) == whole);
    }
  }
}

TEST_CASE("FILE-13 FP8 experts in one tensor have one scale a block, or one for each half of gate and up") {
  const std::string stack = "model.layers.1.mlp.experts.";  // gate_up [6, 96, 64], blocks of 32 x 64
  const auto refusal = [&](const std::function<void(Edited&)>& edit) {
    Edited e("fp8-experts");
    edit(e);
    return e.refusal();
  };
  CHECK(refusal([](Edited&) {}).empty());
  CHECK(contains(refusal([&](Edited& e) { e.header.erase(stack + "down_proj_scale_inv"); }),
                 "'down_proj_scale_inv' is missing"));
  CHECK(contains(refusal([&](Edited& e) {
                   e.put(stack + "gate_up_proj_scale_inv", "F32", {6, 4, 1}, repeated(1.0f, 24));
                 }),
                 "needed is F32 F16 BF16 [6, 3, 1]"));
  CHECK(contains(refusal([&](Edited& e) {
                   e.put(stack + "gate_up_proj_scale_inv", "F32", {6, 3, 1},
                         repeated(std::numeric_limits<float>::quiet_NaN(), 18));
                 }),
                 "holds the scale nan"));
  CHECK(contains(
      refusal([&](Edited& e) { e.put(stack + "down_proj", "U8", {6, 64, 48}, std::string(18432, 1)); }),
      stack + "down_proj' are U8, needed is F8_E4M3 or a tensor for each expert"));
  CHECK(contains(refusal([&](Edited& e) {
                   e.config["quantization_config"]["modules_to_not_convert"].push_back(
                       "model.layers.1.mlp.experts");
                 }),
                 "the configuration says nothing for them"));

  Edited e("fp8-experts");  // without blocks: down by matrix, gate and up by half
  e.config["quantization_config"].erase("weight_block_size");
  const Json stored = e.header;
  for (const auto& [key, tensor] : stored.items())
    if (key.ends_with("_proj.weight_scale_inv")) e.put(key, "F32", {}, test::raw(0.01f));
  std::string halves;
  for (int i = 0; i < 12; ++i) halves += test::raw(0.5f + static_cast<float>(i));
  for (const std::string layer : {"model.layers.0.mlp.experts.", "model.layers.1.mlp.experts."}) {
    e.put(layer + "gate_up_proj_scale_inv", "F32", {6, 2, 1}, halves);
    e.put(layer + "down_proj_scale_inv", "F32", {6, 1, 1}, halves.substr(0, 24));
  }
  const auto checkpoint = Checkpoint::open(e.open());
  const std::string codes = e.bytes_of(stack + "gate_up_proj");
  const WeightView view = checkpoint->find(stack + "gate_up_proj")->view();
  std::vector<float> row(64);
  for (const int64_t r : {int64_t{0}, int64_t{47}, int64_t{48}, int64_t{5 * 96 + 95}}) {
    view.decode_row(r, row.data());
    const float scale = 0.5f + static_cast<float>(r / 96 * 2 + r % 96 / 48);
    for (size_t c = 0; c < 64; ++c)
      CHECK(row[c] == e4m3_to_f32(static_cast<uint8_t>(codes[static_cast<size_t>(r) * 64 + c])) * scale);
  }
  const auto device = make_reference_device();
  CHECK_NOTHROW(Model::load(*checkpoint, *device));
}

TEST_CASE("FILE-13 codes of 8 bits that are no signed bytes are refused") {
  Edited zeros("gptq-8bit");
  zeros.put(kQ + "qzeros", "I32", {2, 16}, std::string(128, '\x05'));
  CHECK(contains(zeros.refusal(), "less its zero point at output"));
  Edited asymmetric("int8");
  asymmetric.put(kQ + "weight_zero_point", "I8", {64, 1}, std::string(64, 1));
  CHECK(contains(asymmetric.refusal(), "has zero points, needed are symmetric codes"));
  Edited narrow("awq-gemv");
  narrow.put(kQ + "scales", "F16", {64, 1}, std::string(128, 0));
  CHECK(contains(narrow.refusal(), "needed is F32 F16 BF16 [64, 2]"));
}

namespace {

struct FloatRows : RowSource {
  std::vector<float> values;
  int64_t cols = 0;
  void read(int64_t first, int64_t count, uint8_t* out) const override {
    std::memcpy(out, values.data() + first * cols, static_cast<size_t>(count * cols) * sizeof(float));
  }
  void release(int64_t, int64_t) const override {}
};

}  // namespace

TEST_CASE("rows of a source, and the scales of rows, follow the experts of a stack") {
  const auto checkpoint = Checkpoint::open(std::string(FIXTURES) + "/transformers/qwen3-moe-sparse");
  const std::string name = "model.layers.3.mlp.experts.down_proj";  // [12, 32, 28]
  const auto logits = [&](const std::function<void(EditedCheckpoint&)>& edit) {
    EditedCheckpoint edited(*checkpoint);
    edit(edited);
    const auto device = make_reference_device();
    const auto model = Model::load(edited, *device);
    return logits_of(*model, *device, {1, 2, 3, 4, 5, 6, 7, 8});
  };
  std::vector<float> factors;
  for (int i = 0; i < 12 * 32; ++i) factors.push_back(1.0f + static_cast<float>(i % 7));
  const auto values = std::make_shared<FloatRows>();
  values->cols = 28;
  const WeightView view = checkpoint->find(name)->view();
  for (int64_t r = 0; r < view.rows; ++r) {
    std::vector<float> row(28);
    view.decode_row(r, row.data());
    for (const float v : row) values->values.push_back(v * factors[static_cast<size_t>(r)]);
  }
  const auto scaled = logits([&](EditedCheckpoint& e) {
    e.weights_[name].scale = std::make_shared<const std::vector<float>>(factors);
  });
  const auto multiplied = logits([&](EditedCheckpoint& e) {
    e.weights_[name].format = Format::F32;
    e.weights_[name].source = values;
  });
  CHECK(worst(scaled, multiplied.data(), 1.0) < 1e-4);
  CHECK(worst(scaled, logits([](EditedCheckpoint&) {}).data(), 1.0) > 1e-2);
}

TEST_CASE("rows of a source, and the scales of rows, follow the order in which a model binds them") {
  // In qwen3-next the projections of both kinds of layers are put in another order.
  const auto checkpoint = Checkpoint::open(std::string(FIXTURES) + "/transformers/qwen3-next");
  const auto logits = [&](bool apart) {
    EditedCheckpoint edited(*checkpoint);
    size_t changed = 0;
    for (auto& [name, weight] : edited.weights_) {
      if (!apart || (name.find("q_proj.") == name.npos && name.find("in_proj_") == name.npos)) continue;
      const WeightView view = weight.view();
      const auto rows = std::make_shared<FloatRows>();
      const auto scale = std::make_shared<std::vector<float>>();
      rows->cols = view.cols;
      for (int64_t r = 0; r < view.rows; ++r) {
        std::vector<float> row(static_cast<size_t>(view.cols));
        view.decode_row(r, row.data());
        scale->push_back(std::ldexp(1.0f, static_cast<int>(r % 5) - 2));
        for (const float v : row) rows->values.push_back(v / scale->back());
      }
      weight.source = rows;
      weight.scale = scale;
      ++changed;
    }
    CHECK(changed == (apart ? 5 : 0));
    const auto device = make_reference_device();
    const auto model = Model::load(edited, *device);
    return logits_of(*model, *device, {1, 2, 3, 4, 5, 6, 7, 8});
  };
  const std::vector<float> want = logits(false);
  CHECK(worst(logits(true), want.data(), 1.0) < 1e-5);
}

TEST_CASE(
    "FILE-13 NaN among FP8 codes is refused with its row in the file, also where rows are put in another "
    "order") {
  const auto checkpoint = Checkpoint::open(std::string(FIXTURES) + "/transformers/qwen3-next");
  const std::string name = "model.layers.0.linear_attn.in_proj_qkvz.weight";
  const Weight* const stored = checkpoint->find(name);
  REQUIRE(stored != nullptr);
  std::vector<uint8_t> codes(static_cast<size_t>(stored->shape[0] * stored->shape[1]), 0x30);
  const auto message = [&](Device& device) {
    EditedCheckpoint edited(*checkpoint);
    Weight& weight = edited.weights_[name];
    weight.format = Format::F8_E4M3;
    weight.data = codes.data();
    weight.file = nullptr;
    weight.scale = std::make_shared<const std::vector<float>>(1, 0.1f);
    return load_error([&] { Model::load(edited, device); });
  };
  Edited in_order("fp8-tensor");
  in_order.put(kUp + "weight", "F8_E4M3", {128, 64}, std::string(8191, '\x30') + '\x7f');
  const auto faulty = Checkpoint::open(in_order.open());
  for (const test::TestDevice& each : test::all_devices()) {
    CAPTURE(each.kind);
    CHECK(contains(load_error([&] { Model::load(*faulty, *each.device); }), "NaN at row 127, column 63"));
    CHECK(message(*each.device).empty());
    // The queries of the second key head stand behind all of the first, and are bound behind its queries.
    const int64_t row = stored->shape[0] / 2 + 1, cols = stored->shape[1];
    codes[static_cast<size_t>(row * cols) + 5] = 0xff;
    const std::string refused = message(*each.device);
    CHECK(contains(refused, name));
    CHECK(contains(refused, "holds NaN at row " + std::to_string(row) + ", column 5"));
    codes[static_cast<size_t>(row * cols) + 5] = 0x30;
  }
}
