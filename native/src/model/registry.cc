// Finds the architecture that a checkpoint names.
#include "base/error.h"
#include "model/architecture.h"

namespace vllm {
namespace {

#define VLLM_ADDRESS(name) &name##_architecture,
const Architecture* const kArchitectures[] = {VLLM_ARCHITECTURES(VLLM_ADDRESS)};
#undef VLLM_ADDRESS

std::string known_names(bool gguf) {
  std::string out;
  for (const Architecture* a : kArchitectures) {
    if (gguf) {
      out += (out.empty() ? "" : ", ") + std::string(a->gguf_name);
    } else {
      for (std::string_view name : a->hf_names) out += (out.empty() ? "" : ", ") + std::string(name);
    }
  }
  return out;
}

}  // namespace

ModelSpec read_model_spec(const Checkpoint& checkpoint, int wanted_length) {
  ModelSpec spec;
  spec.wanted_length = wanted_length;
  if (checkpoint.is_gguf()) {
    const std::string name = Fields(checkpoint.config(), checkpoint.path()).string("general.architecture");
    for (const Architecture* a : kArchitectures) {
      if (a->gguf_name != name) continue;
      spec.architecture = name;
      a->read_gguf(Fields(checkpoint.config(), checkpoint.path(), name + "."), checkpoint, spec);
      return spec;
    }
    fail_load("%s: the architecture is '%s', needed is one of %s", checkpoint.path().c_str(), name.c_str(),
              known_names(true).c_str());
  }
  const Fields config(checkpoint.config(), checkpoint.path() + "/config.json");
  const auto names = config.strings("architectures");
  if (names.empty()) config.fail("architectures", "a list with one of " + known_names(false));
  for (const Architecture* a : kArchitectures) {
    for (std::string_view name : a->hf_names) {
      if (name != names[0]) continue;
      spec.architecture = names[0];
      a->read_hf(config, checkpoint, spec);
      return spec;
    }
  }
  fail_load("%s/config.json: the architecture is '%s', needed is one of %s", checkpoint.path().c_str(),
            names[0].c_str(), known_names(false).c_str());
}

}  // namespace vllm
