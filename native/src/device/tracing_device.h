// Where the time of a step goes.
#pragma once
#include <memory>
#include <string>

#include "device/device.h"

namespace vllm {

/// A device that runs everything on another one and keeps account of it.
class TracingDevice : public Device {
 public:
  /// For each range of rows a step one line an operation (matrix products by format and shape): calls, time,
  /// share of the steps' time, GB/s and G operations/s; "between steps" is what follows a step until the next
  /// one and comes on top of the steps' time. Empty when nothing ran. Starts over.
  virtual std::string take_report() = 0;
};

std::unique_ptr<TracingDevice> make_tracing_device(std::unique_ptr<Device> device);

}  // namespace vllm
