// vllm_server_main: this build serves no HTTP and says so.
#include <cstdio>
#include <cstring>

#include "abi/guard.h"
#include "vllm.h"

extern "C" int32_t vllm_server_main(int32_t argc, char** argv) {
  for (int32_t i = 1; argv && i < argc; ++i) {
    if (!argv[i] || (std::strcmp(argv[i], "--help") != 0 && std::strcmp(argv[i], "-h") != 0)) continue;
    std::puts("usage: server [--help]\nThis build has no HTTP server, so there is nothing to start.");
    return 0;
  }
  vllm::abi::set_last_error("vllm_server_main", "this build has no HTTP server");
  std::fprintf(stderr, "%s\n", vllm_last_error());
  return 1;
}
