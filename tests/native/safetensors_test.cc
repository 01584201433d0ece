#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "allocation_meter.h"
#include "checkpoint_check.h"
#include "file_writers.h"
#include "weights/checkpoint.h"

using namespace vllm;
using namespace vllm::test;

namespace {

const std::string kConfig = R"({"architectures":["LlamaForCausalLM"],"hidden_size":8})";

/// A model folder of one weight file.
std::string error_of(std::string_view weights, const char* asked = nullptr) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  const std::string path = dir.write("model.safetensors", weights);
  const std::string message = load_error([&] {
    const auto model = Checkpoint::open(dir.path);
    use_everything(*model);
    if (asked) {
      const Weight* weight = model->find(asked);
      CHECK(weight != nullptr);
    }
  });
  if (!message.empty()) CHECK(contains(message, path));
  return message;
}

/// The error of one entry "t" over 64 bytes of data.
std::string entry_error(const std::string& entry) {
  return error_of(safetensors_file("{\"t\":" + entry + "}", std::string(64, 'x')));
}

std::string f32_entry(int elements, int begin) {
  return format(R"({"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]})", elements, begin,
                begin + 4 * elements);
}

std::string small_file() {
  return safetensors_file("{\"__metadata__\":{\"format\":\"pt\"},\"a\":" + f32_entry(4, 0) +
                              ",\"b\":" + f32_entry(2, 16) +
                              R"(,"ids":{"dtype":"I64","shape":[1,1],"data_offsets":[24,32]}}  )",
                          std::string(32, '\x01'));
}

}  // namespace

TEST_CASE("a folder of the safetensors package is read as that package reads it") {
  const auto model = Checkpoint::open(FIXTURES "/weights/hf");
  CHECK(!model->is_gguf());
  CHECK(model->path() == FIXTURES "/weights/hf");
  CHECK(Checkpoint::open(FIXTURES "/weights/hf//")->path() == model->path());
  check_tensors(*model, "hf");
  CHECK(model->find("model.scalar")->view().rows == 1);
  CHECK(model->find("model.scalar")->view().cols == 1);
  CHECK(model->find("model.conv")->view().rows == 6);
  CHECK(model->find("model.conv")->view().cols == 4);
  CHECK(model->string_array("x").empty());
  CHECK(model->int_array("x").empty());
  CHECK(model->float_array("x").empty());
  CHECK(model->fingerprint().size() == 16);
}

TEST_CASE("FILE-13 text_config is laid over the top level") {
  const Json config = Checkpoint::open(FIXTURES "/weights/hf")->config();
  CHECK(
      dump_json(config) ==
      R"({"architectures":["OuterForConditionalGeneration"],"model_type":"inner","tie_word_embeddings":false,)"
      R"("vision_config":{"hidden_size":7},"hidden_size":8})");
  const TempDir dir;
  dir.write("model.safetensors", small_file());
  const auto merged = [&](const char* text) {
    dir.write("config.json", text);
    return dump_json(Checkpoint::open(dir.path)->config());
  };
  CHECK(merged(R"({"text_config":{"tie_word_embeddings":true,"architectures":["A"]}})") ==
        R"({"tie_word_embeddings":true,"architectures":["A"]})");
  CHECK(
      merged(
          R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":32},"a":1,"text_config":{"quantization_config":{"q":2},"a":2,"b":3}})") ==
      R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":32},"a":2,"b":3})");
  CHECK(merged(R"({"a":1,"text_config":null})") == R"({"a":1,"text_config":null})");
  dir.write("config.json", R"({"text_config":[1]})");
  CHECK(contains(load_error([&] { Checkpoint::open(dir.path); }),
                 "text_config is '[1]', needed is an object."));
}

TEST_CASE("tensors of any alignment are read") {
  const float value = 1.25f;
  const std::string data = "abc" + raw(value);
  const TempDir dir;
  dir.write("config.json", kConfig);
  for (const char* padding : {"", " ", "  ", "   "}) {
    dir.write("model.safetensors", safetensors_file("{\"t\":" + f32_entry(1, 3) + "}" + padding, data));
    const auto model = Checkpoint::open(dir.path);
    CHECK(decoded(*model->find("t")) == std::vector<float>{value});
  }
}

TEST_CASE("FILE-09 a tensor of an unsupported type matters only when it is asked for") {
  CHECK(error_of(small_file(), "a").empty());
  CHECK(contains(error_of(small_file(), "ids"),
                 "tensor 'ids' has the type I64, supported are F32, F16, BF16, Q4_0"));
  CHECK(contains(
      error_of(safetensors_file(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "abcd"),
               "w"),
      "tensor 'w' has the type F8_E4M3"));
}

TEST_CASE("FILE-06 a header that is too long or no JSON object is refused with the file") {
  const std::string valid = small_file();
  CHECK(error_of(valid).empty());
  CHECK(contains(error_of("1234567"), "has 7 bytes, a safetensors file needs at least"));
  CHECK(contains(error_of(raw<uint64_t>(100'000'001) + "{}"),
                 "its header would have 100000001 bytes, allowed are 100000000."));
  CHECK(contains(error_of(raw(UINT64_MAX) + "{}"), "its header would have 18446744073709551615 bytes"));
  CHECK(contains(error_of(raw<uint64_t>(3) + "{}"), "has 10 bytes, its header needs 11."));
  CHECK(contains(error_of(safetensors_file("", "")), "is no valid JSON"));
  CHECK(contains(error_of(safetensors_file("{\"a\":", "")), "is no valid JSON"));
  CHECK(contains(error_of(safetensors_file("[]", "")), "is no JSON object."));
  CHECK(contains(error_of(safetensors_file("{\"a\":{\"b\":[[1]]}}", "")),
                 "is nested deeper than the 3 levels"));
  CHECK(contains(error_of("Hello, I am a text.\n"), "is no safetensors file"));
}

TEST_CASE("FILE-06 duplicate names are refused by name") {
  CHECK(contains(
      error_of(safetensors_file("{\"a\":" + f32_entry(1, 0) + ",\"a\":" + f32_entry(1, 4) + "}", "12345678")),
      "holds the key 'a' twice"));
  CHECK(contains(entry_error(R"({"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]})"),
                 "'dtype' twice"));
}

TEST_CASE("FILE-06 entries that are malformed are refused with file and tensor") {
  const auto refused = [](const std::string& entry, const char* why) {
    const std::string message = entry_error(entry);
    CAPTURE(message);
    CHECK(contains(message, "tensor 't' " + std::string(why)));
  };
  CHECK(entry_error(f32_entry(16, 0)).empty());
  CHECK(entry_error(R"({"dtype":"F32","shape":[0,9],"data_offsets":[4,4]})").empty());
  refused("5", "is '5', needed is an object.");
  refused("null", "is 'null'");
  refused("{}", "has the unknown dtype 'null'.");
  refused(R"({"dtype":"F7","shape":[1],"data_offsets":[0,4]})", "has the unknown dtype '\"F7\"'.");
  refused(R"({"dtype":3,"shape":[1],"data_offsets":[0,4]})", "has the unknown dtype '3'.");
  refused(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})", "has the shape '4', needed is an array.");
  refused(R"({"dtype":"F32","data_offsets":[0,16]})", "has the shape 'null'");
  refused(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})",
          "has the shape '[-4]', needed are integers from 0.");
  refused(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})", "has the shape '[4.0]'");
  refused(R"({"dtype":"F32","shape":["4"],"data_offsets":[0,16]})", "has the shape");
  refused(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})",
          "has the shape '[4294967296,4294967296]', more bits");
  refused(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]})", "has the shape");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})", "has the reversed data_offsets '[16,0]'.");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[0,15]})",
          "has 15 bytes by its data_offsets, its shape '[4]' of F32 needs 16.");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[0,20]})", "has 20 bytes");
  refused(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})", "has 1 bytes");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})",
          "has the data_offsets '[0]', needed are two integers.");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[-16,0]})", "has the data_offsets");
  refused(R"({"dtype":"F32","shape":[4],"data_offsets":[0.0,16.0]})", "has the data_offsets");
  refused(R"({"dtype":"F32","shape":[4]})", "has the data_offsets 'null'");
}

TEST_CASE("FILE-06 overlapping tensors are refused by name") {
  const auto two = [](int second) {
    return error_of(safetensors_file("{\"a\":" + f32_entry(4, 0) + ",\"b\":" + f32_entry(4, second) + "}",
                                     std::string(64, 'x')));
  };
  CHECK(two(16).empty());
  CHECK(two(20).empty());
  CHECK(contains(two(15), "the tensors 'a' and 'b' overlap."));
  CHECK(contains(two(0), "overlap."));
}

TEST_CASE("FILE-05 every shorter file is refused") {
  const std::string whole = small_file();
  CHECK(contains(error_of(whole.substr(0, whole.size() - 1)), "has " + std::to_string(whole.size() - 1) +
                                                                  " bytes, its tensor table needs " +
                                                                  std::to_string(whole.size()) + "."));
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(!error_of(whole.substr(0, size)).empty());
  }
  CHECK(contains(
      entry_error(R"({"dtype":"U8","shape":[4],"data_offsets":[18446744073709551611,18446744073709551615]})"),
      "its tensor table needs 18446744073709551615."));
}

namespace {

/// A folder with an index over two shards of one tensor each.
struct ShardedModel {
  std::string index = R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})";
  std::string error(const std::vector<std::string>& left_out = {}) const {
    const TempDir dir;
    for (const auto& [name, content] :
         {std::pair{"config.json", kConfig}, std::pair{"model.safetensors.index.json", index},
          std::pair{"m-1.safetensors", shard("a")}, std::pair{"m-2.safetensors", shard("b")}}) {
      if (std::ranges::find(left_out, name) == left_out.end()) dir.write(name, content);
    }
    return load_error([&] {
      const auto model = Checkpoint::open(dir.path);
      use_everything(*model);
      CHECK(model->weights().size() == 2);
      CHECK(model->find("a") != nullptr);
      CHECK(model->find("b") != nullptr);
    });
  }
  static std::string shard(const std::string& name) {
    return safetensors_file("{\"" + name + "\":" + f32_entry(1, 0) + ",\"spare\":" + f32_entry(1, 4) + "}",
                            "12345678");
  }
};

}  // namespace

TEST_CASE("FILE-07 missing shards, tensors missing from their shard and unusable shard names are refused") {
  ShardedModel model;
  CHECK(model.error().empty());
  CHECK(contains(model.error({"m-2.safetensors"}),
                 "model.safetensors.index.json names weight files that are missing: 'm-2.safetensors'."));
  CHECK(contains(model.error({"m-1.safetensors", "m-2.safetensors"}),
                 "missing: 'm-1.safetensors', 'm-2.safetensors'."));
  CHECK(contains(model.error({"model.safetensors.index.json"}),
                 "holds several weight files ('m-1.safetensors', 'm-2.safetensors')"));

  model.index = R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-1.safetensors"}})";
  CHECK(contains(model.error(),
                 "m-1.safetensors lacks tensors that model.safetensors.index.json places there: 'b', 'c'."));
  for (const char* name : {"../m-1.safetensors", "/etc/passwd", "x/m-1.safetensors", "x\\\\m-1.safetensors",
                           ".", "..", "", "m\\u0000"}) {
    model.index = format(R"({"weight_map":{"a":"%s"}})", name);
    CHECK(contains(model.error(), "the file of tensor 'a' is '\""));
    CHECK(contains(model.error(), "needed is a plain file name."));
  }
  model.index = R"({"weight_map":{"a":7}})";
  CHECK(contains(model.error(), "the file of tensor 'a' is '7'"));
  model.index = R"({"weight_map":["a"]})";
  CHECK(contains(model.error(), "has no weight_map"));
  model.index = R"([])";
  CHECK(contains(model.error(), "has no weight_map"));
  model.index = R"({"weight_map":{}})";
  CHECK(contains(model.error(), "holds no tensors"));
  model.index = R"({"weight_map":)";
  CHECK(contains(model.error(), "model.safetensors.index.json is no valid JSON"));
}

TEST_CASE("LOAD-05 a folder that is no model is refused with what is missing") {
  const TempDir dir;
  const auto error = [&] { return load_error([&] { Checkpoint::open(dir.path); }); };
  CHECK(contains(error(),
                 dir.path + " has no config.json, needed is a Hugging Face model directory or a GGUF file."));
  dir.write("model.gguf", "GGUF");
  CHECK(contains(error(), "it holds 'model.gguf', name that file instead."));
  dir.write("config.json", "[1]");
  CHECK(contains(error(), "config.json is no JSON object."));
  dir.write("config.json", "{");
  CHECK(contains(error(), dir.path + "/config.json is no valid JSON at byte"));
  dir.write("config.json", kConfig);
  CHECK(contains(error(), "holds no weights, needed are .safetensors files."));
  dir.write("pytorch_model.bin", "x");
  CHECK(contains(error(), "needed are .safetensors files; 'pytorch_model.bin' cannot be read."));
  dir.write("odd.safetensors", small_file());
  CHECK(error().empty());
  dir.write("model.safetensors", safetensors_file("{\"other\":" + f32_entry(1, 0) + "}", "1234"));
  CHECK(Checkpoint::open(dir.path)->find("other") != nullptr);
  dir.write("model.safetensors", safetensors_file("{}", ""));
  CHECK(contains(error(), "holds no tensors"));
}

TEST_CASE("FILE-06 damaged files load or are refused, within bounded memory") {
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string whole = small_file();
  const size_t header = whole.size() - 32;
  const TempDir dir;
  dir.write("config.json", kConfig);
  int loaded = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string content = whole;
    switch (below(4)) {
      case 0:
        for (size_t i = below(3) + 1; i > 0; --i) content[below(header)] = static_cast<char>(random());
        break;
      case 1:  // another digit somewhere
        for (size_t at = below(header); at < header; ++at) {
          if (content[at] >= '0' && content[at] <= '9') {
            content[at] = static_cast<char>('0' + below(10));
            break;
          }
        }
        break;
      case 2:
        content.erase(below(content.size() - 1) + 1, below(2) ? std::string::npos : below(16));
        break;
      default:
        content.insert(8 + below(header - 8), std::string(below(40), "[{\"0,x "[below(7)]));
    }
    dir.write("model.safetensors", content);
    CAPTURE(round);
    const size_t grown = peak_growth([&] {
      ++(load_error([&] { use_everything(*Checkpoint::open(dir.path)); }).empty() ? loaded : refused);
    });
    REQUIRE(grown < 64 * 1024);
  }
  CHECK(loaded > 200);
  CHECK(refused > 500);
}
