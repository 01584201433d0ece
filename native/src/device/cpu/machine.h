// What the machine, or the container around us, lets us use.
#pragma once
#include <cstddef>
#include <string>

namespace vllm::cpu {

/// Logical processors this process may run on: its affinity mask, and the CPU quota of its control group
/// rounded up.
int available_cores();
/// Distinct cores among them (two hardware threads of one core count once), never more than
/// available_cores().
int physical_cores();
/// Bytes of memory of the machine, or the limit of the control group where that is less.
size_t total_memory();
/// Bytes that could be allocated now: MemAvailable of the system or what the control group leaves, whichever
/// is less.
size_t available_memory();
/// The name that the processor gives itself; empty when it gives none.
std::string processor_name();

}  // namespace vllm::cpu
