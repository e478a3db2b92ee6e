// Options of other programs, and what does the same here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct ForeignOption {
  std::string_view theirs;        // without dashes
  std::string_view ours;          // "--lr", of engine train, and what is to be said of it
  std::string_view launch = {};   // the option of engine launch, where there is one
  std::string_view instead = {};  // where there is no such option: what to do
};

// Those of torchrun, PyTorch's examples, Lightning, Keras and Hugging Face's Trainer.
std::span<const ForeignOption> foreign_options();

// ": here it is --lr", for a command that has the options `known` (without dashes); "" for what
// nobody else calls an option either.
std::string foreign_hint(std::string_view name, const std::vector<std::string>& known);

}  // namespace tools
