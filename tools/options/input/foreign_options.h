// Maps options of other programs to those of this one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

struct ForeignOption {
  std::string_view theirs;        // without dashes
  std::string_view ours;          // "--lr", of engine train, with a remark
  std::string_view launch = {};   // the option of engine launch, if there is one
  std::string_view instead = {};  // if there is no such option: what to do
};

// Returns the options of torchrun, PyTorch's examples, Lightning, Keras and Hugging Face's Trainer.
std::span<const ForeignOption> foreign_options();

// Returns ": here it is --lr", for a command that has the options `known` (without dashes); "" for
// a name that other programs do not use either.
std::string foreign_hint(std::string_view name, const std::vector<std::string>& known);

}  // namespace tools
