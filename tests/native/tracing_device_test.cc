// The account of a step's time: it changes no result and counts what ran.
#include "device/tracing_device.h"

#include <doctest/doctest.h>

#include "model/model.h"
#include "tiny_models.h"

using namespace vllm;

namespace {

std::vector<float> last_logits(Device& device, int rows) {
  const auto checkpoint = Checkpoint::open(tiny::folder("qwen3"));
  const auto model = Model::load(*checkpoint, device);
  KvCacheSpec spec;
  spec.layers = model->kv_layers();
  spec.block_size = 16;
  spec.num_blocks = 4;
  const auto cache = device.make_kv_cache(spec);
  StepBatch batch;
  for (int i = 0; i < rows; ++i) {
    batch.token_ids.push_back(i + 5);
    batch.positions.push_back(i);
  }
  batch.seq_start = {0, rows};
  batch.block_table = {0, 1, 2, 3};
  batch.max_blocks = 4;
  batch.state_slots = {-1};
  batch.logit_rows = {rows - 1};
  model->forward(batch, *cache);
  const auto logits = model->logits(0);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("a traced device computes the same and counts its operations by rows a step") {
  const auto plain = make_cpu_device(2);
  const auto traced = make_tracing_device(make_cpu_device(2));
  CHECK(traced->take_report().empty());
  CHECK(last_logits(*traced, 5) == last_logits(*plain, 5));
  last_logits(*traced, 40);
  const std::string report = traced->take_report();
  CAPTURE(report);
  CHECK(report.find("1 steps of 2 to 8 rows") != std::string::npos);
  CHECK(report.find("1 steps of 33 and more rows") != std::string::npos);
  CHECK(report.find("steps of 1 rows") == std::string::npos);
  for (const char* name : {"embed", "rms_norm", "matmul F32", "norm_rope", "write_kv", "attention", "gated"})
    CHECK(report.find(name) != std::string::npos);
  CHECK(traced->take_report().empty());
}
