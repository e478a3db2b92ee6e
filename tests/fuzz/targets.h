// What is fuzzed: one function for each parser of data that others may have written. A function
// takes any bytes and returns, or throws one of the program's own errors for what is refused;
// anything else (a crash, a sanitizer's report, bad_alloc, another exception) is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fuzz {

using Input = std::span<const std::uint8_t>;

void checkpoint(Input input);
void safetensors(Input input);
void npz(Input input);
void npy_header(Input input);
void torch_archive(Input input);
void torch_pickle(Input input);
void csv(Input input);
void idx(Input input);
void cifar10(Input input);
void tokens(Input input);
void arrays(Input input);
void image(Input input);
void tokenizer(Input input);
void hostlist(Input input);
void store_frames(Input input);
void server_members(Input input);
void member_frames(Input input);
void membership_frames(Input input);
void control_words(Input input);
void rendezvous_file(Input input);
void config(Input input);
void option_values(Input input);
void layer_list(Input input);
void model_definition(Input input);
void onnx(Input input);
void onnx_graph(Input input);
void published_config(Input input);
void flight_record(Input input);
void run_record(Input input);
void run_status(Input input);
void sample_statement(Input input);
void control_line(Input input);

struct Target {
  const char* name;
  void (*run)(Input input);
};
inline constexpr Target kTargets[] = {
    {"checkpoint", checkpoint},
    {"safetensors", safetensors},
    {"npz", npz},
    {"npy_header", npy_header},
    {"torch_archive", torch_archive},
    {"torch_pickle", torch_pickle},
    {"csv", csv},
    {"idx", idx},
    {"cifar10", cifar10},
    {"tokens", tokens},
    {"arrays", arrays},
    {"image", image},
    {"tokenizer", tokenizer},
    {"hostlist", hostlist},
    {"store_frames", store_frames},
    {"server_members", server_members},
    {"member_frames", member_frames},
    {"membership_frames", membership_frames},
    {"control_words", control_words},
    {"rendezvous_file", rendezvous_file},
    {"config", config},
    {"option_values", option_values},
    {"layer_list", layer_list},
    {"model_definition", model_definition},
    {"onnx", onnx},
    {"onnx_graph", onnx_graph},
    {"published_config", published_config},
    {"flight_record", flight_record},
    {"run_record", run_record},
    {"run_status", run_status},
    {"sample_statement", sample_statement},
    {"control_line", control_line},
};

// Make lengths, sums and digests of a mutated checkpoint or archive right again, so that what is
// behind them is reached as well.
void repair_checkpoint(std::vector<std::uint8_t>& bytes);
void repair_npz(std::vector<std::uint8_t>& bytes);
void repair_torch_archive(std::vector<std::uint8_t>& bytes);

}  // namespace fuzz
