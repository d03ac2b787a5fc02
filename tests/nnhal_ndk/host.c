/* A host in C: loads the library by name, calls it from threads, forks, unloads it and loads it again. */

#define _POSIX_C_SOURCE 200809L

#include <android/NeuralNetworks.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 200 };

typedef int (*Count)(uint32_t*);
typedef int (*Create)(ANeuralNetworksModel**);
typedef void (*Free)(ANeuralNetworksModel*);
typedef int (*Finish)(ANeuralNetworksModel*);

static struct {
    Count count;
    Create create;
    Free free;
    Finish finish;
} api;

static void require(int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void* load(void) {
    void* library = dlopen("libneuralnetworks.so", RTLD_LAZY | RTLD_LOCAL);
    require(library != NULL, "dlopen");
    *(void**)&api.count = dlsym(library, "ANeuralNetworks_getDeviceCount");
    *(void**)&api.create = dlsym(library, "ANeuralNetworksModel_create");
    *(void**)&api.free = dlsym(library, "ANeuralNetworksModel_free");
    *(void**)&api.finish = dlsym(library, "ANeuralNetworksModel_finish");
    return library;
}

/* Finishes an empty model, which is invalid, twice. */
static int use_model(void) {
    ANeuralNetworksModel* model = NULL;
    if (api.create(&model) != ANEURALNETWORKS_NO_ERROR) return 0;
    int first = api.finish(model), second = api.finish(model);
    api.free(model);
    return first == ANEURALNETWORKS_BAD_DATA && second == ANEURALNETWORKS_BAD_STATE;
}

static void* use_models(void* argument) {
    for (int i = 0; i < ROUNDS; i++) require(use_model(), "a call in a thread");
    return argument;
}

static void say(const char* word) {
    printf("%s\n", word);
    fflush(stdout);
}

int main(void) {
    void* library = load();
    pthread_t threads[THREADS];
    say("loaded");
    /* the first call, which starts the interpreter, comes from several threads at once */
    for (int i = 0; i < THREADS; i++) require(pthread_create(&threads[i], NULL, use_models, NULL) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++) require(pthread_join(threads[i], NULL) == 0, "pthread_join");
    uint32_t count = 0;
    require(api.count(&count) == 0 && count == 2, "the number of devices");
    say("threads");
    pid_t child = fork();
    if (child == 0) {
        require(use_model(), "a call in a child");
        say("child");
        exit(0);
    }
    int status = 1;
    require(waitpid(child, &status, 0) == child && status == 0, "the child");
    require(use_model(), "a call after a fork");
    say("forked");
    require(dlclose(library) == 0, "dlclose");
    library = load();
    require(use_model(), "a call after dlclose and dlopen");
    say("reloaded");
    say("done");
    return 0;
}
