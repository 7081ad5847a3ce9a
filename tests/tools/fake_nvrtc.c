// An NVRTC that knows sm_70, sm_80 and sm_90, and whose code is what it was given: options, header names, source.
// VERSION_MAJOR and VERSION_MINOR come from the command line. A source with the word "wrong" does not compile.
#include <stdio.h>
#include <string.h>

static char source_of_it[4096], headers[4096], code[16384];

const char* nvrtcGetErrorString(int error) { return error == 6 ? "NVRTC_ERROR_COMPILATION" : "an error"; }

int nvrtcVersion(int* major, int* minor) {
  *major = VERSION_MAJOR;
  *minor = VERSION_MINOR;
  return 0;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}

int nvrtcGetSupportedArchs(int* codes) {
  for (int i = 0; i < 3; ++i) codes[i] = 70 + 10 * i;
  return 0;
}

int nvrtcCreateProgram(void** program, const char* source, const char* name, int count, const char* const* texts,
                       const char* const* names) {
  *program = code;
  snprintf(source_of_it, sizeof(source_of_it), "%s: %s", name, source);
  headers[0] = '\0';
  for (int i = 0; i < count; ++i) {
    if (strstr(texts[i], "#pragma once") == NULL) return 1;
    strcat(strcat(headers, names[i]), " ");
  }
  return 0;
}

int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  (void)program;
  code[0] = '\0';
  for (int i = 0; i < count; ++i) strcat(strcat(code, options[i]), " ");
  strcat(strcat(strcat(code, "| "), headers), "| ");
  strcat(code, source_of_it);
  return strstr(source_of_it, "wrong") != NULL ? 6 : 0;
}

static int Size(size_t* bytes, const char* text) {
  *bytes = strlen(text);
  return 0;
}
static int Text(char* into, const char* text) {
  memcpy(into, text, strlen(text));
  return 0;
}

int nvrtcGetCUBINSize(void* program, size_t* bytes) { return Size(bytes, program); }
int nvrtcGetCUBIN(void* program, char* into) { return Text(into, program); }
int nvrtcGetPTXSize(void* program, size_t* bytes) {
  (void)program;
  return Size(bytes, "PTX");
}
int nvrtcGetPTX(void* program, char* into) {
  (void)program;
  return Text(into, "PTX");
}
int nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  (void)program;
  return Size(bytes, "move.cu(3): error: wrong");
}
int nvrtcGetProgramLog(void* program, char* into) {
  (void)program;
  return Text(into, "move.cu(3): error: wrong");
}
