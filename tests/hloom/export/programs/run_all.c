/* Runs every function of a library: inputs of all of them from in.bin, outputs to out.bin. */
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"

enum { MOST = 256 };

int main(int count, char **arguments) {
  hloom_options options = HLOOM_OPTIONS;
  options.num_threads = count > 1 ? atoi(arguments[1]) : 1;
  hloom_program *program;
  if (cases_create(&options, &program)) {
    fprintf(stderr, "%s\n", cases_error());
    return 1;
  }
  const hloom_library *library = cases_library();
  FILE *in = fopen("in.bin", "rb"), *out = fopen("out.bin", "wb");
  if (!in || !out) return 2;
  for (int f = 0; f < library->function_count; f++) {
    const hloom_function *function = &library->functions[f];
    hloom_tensor inputs[MOST], outputs[MOST];
    for (int k = 0; k < function->input_count + function->output_count; k++) {
      const int is_input = k < function->input_count;
      const hloom_value *value = is_input ? &function->inputs[k] : &function->outputs[k - function->input_count];
      hloom_tensor *tensor = is_input ? &inputs[k] : &outputs[k - function->input_count];
      const size_t bytes = (size_t)value->bytes;
      *tensor = (hloom_tensor){malloc(bytes + 64), value->dtype, value->rank, value->shape};
      if (is_input && bytes && fread(tensor->data, 1, bytes, in) != bytes) return 3;
    }
    if (library->run(program, f, inputs, function->input_count, outputs, function->output_count)) {
      fprintf(stderr, "%s\n", library->error());
      return 4;
    }
    for (int k = 0; k < function->output_count; k++) fwrite(outputs[k].data, 1, (size_t)function->outputs[k].bytes, out);
    for (int k = 0; k < function->input_count; k++) free(inputs[k].data);
    for (int k = 0; k < function->output_count; k++) free(outputs[k].data);
  }
  fclose(out);
  cases_destroy(program);
  return 0;
}
