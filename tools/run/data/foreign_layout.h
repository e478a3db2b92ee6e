// Converts arrays between the layers of an imported network and the layout of the program that it
// came from: PyTorch's `x @ self.w` reads the transpose of what the layer stores.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "models/onnx_origins/file_layout.h"

namespace tools {

// The model that reads arrays, as in models::ModelOptions.
struct ReadingModel {
  std::string name, definition;
};

// Converts the layers' arrays to the layout of the file that the network was imported from.
void to_foreign_layout(const models::FileLayouts& layouts, std::vector<io::NamedArray>& arrays);
// Converts arrays of that layout, also under the names of PyTorch's state_dict(), to the layers'.
// Files of earlier versions have the layers' layout: they stay as they are if a shape shows it.
void from_foreign_layout(const models::FileLayouts& layouts, std::vector<io::NamedArray>& arrays);
// The same for the arrays of the file `path`, unless it is a checkpoint.
void from_foreign_layout(const ReadingModel& model, const std::string& path,
                         std::vector<io::NamedArray>& arrays);

}  // namespace tools
