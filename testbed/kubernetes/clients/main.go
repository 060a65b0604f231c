// kubectl and helm in one program, chosen by the name it is called by.
package main

import (
	"errors"
	"os"
	"path/filepath"

	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if filepath.Base(os.Args[0]) == "helm" {
		os.Exit(runHelm())
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

func runHelm() int {
	kube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	var ended helm.CommandError
	switch {
	case errors.As(err, &ended):
		return ended.ExitCode
	case err != nil:
		return 1
	}
	return 0
}
