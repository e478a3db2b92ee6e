// The layout that the parameters of an imported network have in the file of the other program, if
// its layers store them in another one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace models {

struct FileLayout {
  std::vector<std::int64_t> shape;  // in the file
  bool transposed = false;          // the layer stores its transpose: both have two dimensions
};

struct FileLayouts {
  std::map<std::string, FileLayout> arrays;  // by the name in the list of layers
  std::int64_t classes = 0;                  // that the file has, which the data may replace
};

// Returns those that the list of layers `definition` of the file `name` states; "": that of the
// file, if it is an ONNX file. Throws as model_definition() does. Defined in models/layer_list.cc.
FileLayouts file_layouts(const std::string& name, const std::string& definition);

}  // namespace models
