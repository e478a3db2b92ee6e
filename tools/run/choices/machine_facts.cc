// Exchanges facts as JSON between all ranks.
#include "tools/run/choices/machine_facts.h"

#include <algorithm>
#include <map>
#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/memory_text.h"
#include "tools/launch/group/rank_exchange.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/machine_info.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/json_file.h"

namespace tools {
namespace {

using Facts = std::map<std::string, std::string>;

// Excludes facts that distinguish equal machines, e.g. a host's name or a device's number.
Facts own_facts(const Compute& compute, int threads) {
  const MachineInfo machine = machine_info();
  const std::string cores = std::to_string(machine.cores);
  Facts facts{
      {"cpu", machine.cpu},
      {"instructions", std::string(engine::ops::to_string(engine::ops::isa_of(compute.products)))},
      {"cores", machine.allowed_cores == machine.cores
                    ? cores
                    : std::to_string(machine.allowed_cores) + " of " + cores},
      {"threads", std::to_string(threads)},
      {"memory", base::memory_text(static_cast<std::uint64_t>(machine.memory_bytes))},
      {"device", "cpu"},
      {"system", machine.system},
      {"kernel", machine.kernel},
      {"compiler", ENGINE_COMPILER ", " ENGINE_BUILD_TYPE}};
  if (compute.cuda()) {
    const engine::cuda::DeviceInfo info = engine::cuda::device_info(compute.device.index);
    facts["device"] = info.name + ", sm_" + std::to_string(info.major) +
                      std::to_string(info.minor) + ", " + base::memory_text(info.memory_bytes);
    facts["cuda"] = gpu_note();
  }
  return facts;
}

}  // namespace

std::vector<RunMachine> gather_machines(backends::Communicator& control, const Compute& compute,
                                        int threads) {
  base::JsonWriter json;
  json.begin_object();
  for (const auto& [name, text] : own_facts(compute, threads)) json.member(name, text);
  std::vector<RunMachine> machines;
  int rank = 0;
  for (const std::string& text : gather_texts(control, json.end_object().text())) {
    const Facts facts = parse_json(text, "a rank's machine").get<Facts>();
    auto same = std::ranges::find(machines, facts, &RunMachine::facts);
    if (same == machines.end()) same = machines.insert(same, {.ranks = {}, .facts = facts});
    same->ranks.push_back(rank++);
  }
  return machines;
}

}  // namespace tools
