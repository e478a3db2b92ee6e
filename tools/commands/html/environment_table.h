// What the starts of a run ran on, as the page of `engine report` shows it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "tools/run/folder/run_record.h"

namespace tools {

inline constexpr std::string_view kRanksRow = "ranks";

// Names of facts, as run.json has them where it knows them, and their titles.
inline constexpr auto kEnvironmentRows =
    std::to_array<std::pair<std::string_view, const char*>>({{kRanksRow, "ranks"},
                                                             {"backend", "backend"},
                                                             {"cpu", "CPU"},
                                                             {"instructions", "instruction set"},
                                                             {"cores", "cores"},
                                                             {"threads", "threads of each rank"},
                                                             {"memory", "memory"},
                                                             {"device", "device of each rank"},
                                                             {"cuda", "CUDA"},
                                                             {"system", "system"},
                                                             {"kernel", "kernel"},
                                                             {"compiler", "compiler"},
                                                             {"program", "program"}});

// One of them, of all machines of the last start: "2", "1; 4". "" where it is not known.
std::string environment_text(const RunRecord& record, std::string_view name);

// A table with a column for each environment: starts and machines that share one share the column.
std::string environment_html(const RunRecord& record);

}  // namespace tools
